// Why a partition is as it is: the answers of `strandline why`, in a dialog.

import { el } from "./dom.js";
import { get } from "./live.js";

const ROUTE = "GET /why/{question}/{partition}";
let asked = null;

/** Whether this broker answers why; asked once, and again if there was no answer. */
export function canTellWhy() {
  asked ??= get("/").then((found) => ROUTE in found.document.routes).catch(() => {
    asked = null;
    return false;
  });
  return asked;
}

/** What may be asked about a partition in its present state. */
function questionsFor(row) {
  if (row.state === "offline") return ["offline"];
  return row.isr.length < row.replicas.length ? ["leader", "left-isr"] : ["leader"];
}

async function answer(question, name) {
  try {
    const { document: told } = await get(`/why/${question}/${encodeURIComponent(name)}`);
    return [el("p", {}, told.answer), el("ul", {}, ...(told.because || []).map((each) => el("li", {}, each)))];
  } catch (error) {
    return [el("p", { class: "bad" }, error.message)];
  }
}

/** Opens the dialog for a row of the table of partitions. */
export async function tellWhy(row) {
  const name = `${row.topic}-${row.partition}`;
  const place = el("div", { class: "told" }, el("p", { class: "soft" }, "Asking all brokers…"));
  const dialog = el("dialog", { class: "why", "aria-labelledby": "why-title", onclose: () => dialog.remove() },
    el("h2", { id: "why-title" }, `Why ${name} is as it is`), place,
    el("form", { method: "dialog" }, el("button", { autofocus: true }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
  const parts = await Promise.all(questionsFor(row).map((question) => answer(question, name)));
  place.replaceChildren(...parts.flat());
}
