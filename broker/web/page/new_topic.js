// The dialog that creates a topic, where the broker allows it.

import { el, say } from "./dom.js";
import { get } from "./live.js";

const field = (text, input) => el("label", { class: "field" }, text, input);

function configsIn(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`${line}: expected name=value, e.g. retention.ms=60000`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

/** Asks for a topic and creates it; `created()` is called then. */
export function newTopic(created) {
  const name = el("input", { required: true, maxlength: "249", autocomplete: "off", autofocus: true });
  const partitions = el("input", { type: "number", min: "1", max: "10000", placeholder: "broker's default" });
  const copies = el("input", { type: "number", min: "1", max: "32", placeholder: "broker's default" });
  const configs = el("textarea", { rows: "3", cols: "34", placeholder: "retention.ms=60000" });
  const error = el("p", { class: "error", role: "alert" });
  const make = async (event) => {
    event.preventDefault();
    say(error, "");
    try {
      const topic = { name: name.value.trim(), configs: configsIn(configs.value) };
      if (partitions.value) topic.partitions = Number(partitions.value);
      if (copies.value) topic.replication_factor = Number(copies.value);
      await get("/api/topics", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(topic) });
      dialog.close();
      created();
    } catch (failure) {
      say(error, failure.message);
    }
  };
  const dialog = el("dialog", { "aria-labelledby": "new-title", onclose: () => dialog.remove() },
    el("h2", { id: "new-title" }, "New topic"),
    el("form", { class: "stack", onsubmit: make }, field("Name", name), field("Partitions", partitions), field("Replicas", copies),
      field("Settings, one a line", configs), error,
      el("div", { class: "ends" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), el("button", { class: "first" }, "Create"))));
  document.body.append(dialog);
  dialog.showModal();
}
