// Reads records of a partition: the last ones, or from an offset or a time on. Values are shown as text.

import { el, number, plural, say } from "./dom.js";
import { get } from "./live.js";

const HEX_LINE = 32;
const LINE = 100; // bytes of JSON that stay on one line

const bytesOf = (part) => (part.hex === undefined ? new TextEncoder().encode(part.text)
  : Uint8Array.from(part.hex.match(/../g) || [], (each) => parseInt(each, 16)));

function asHex(part) {
  const hex = [...bytesOf(part)].map((byte) => byte.toString(16).padStart(2, "0"));
  const lines = [];
  for (let at = 0; at < hex.length; at += HEX_LINE) lines.push(hex.slice(at, at + HEX_LINE).join(" "));
  return lines.join("\n");
}

function asJson(part) {
  try {
    return part.text === undefined ? null : JSON.stringify(JSON.parse(part.text), null, 2);
  } catch {
    return null; // it is none, or it was cut off
  }
}

/** A key, a value or a header in the format that is chosen; `auto` is text, long JSON laid out, else hex. */
export function shown(part, format) {
  const text = part.text ?? new TextDecoder().decode(bytesOf(part));
  let made = text;
  if (format === "hex" || (format === "auto" && part.hex !== undefined)) made = asHex(part);
  else if (format === "json" || (format === "auto" && part.bytes > LINE && /^\s*[[{]/.test(text))) made = asJson(part) || text;
  const given = bytesOf(part).length;
  return given < part.bytes ? `${made}\n… ${number(part.bytes - given)} more bytes` : made;
}

function cell(part, format, kind) {
  if (part === null) return el("span", { class: "null" }, "null");
  return el("span", { class: kind, tabindex: kind === "value" ? "0" : null }, shown(part, format));
}

function row(one, format) {
  const time = el("td", { class: "mono soft" }, new Date(one.timestamp_ms).toISOString().replace("T", " ").replace("Z", ""));
  const offset = el("td", { class: "number" }, String(one.offset));
  if (one.control) {
    return el("tr", { class: "record", "data-row": true, tabindex: "-1" }, offset, time,
      el("td", { colspan: "3" }, el("span", { class: "pill warned" }, `${one.control} marker`), el("span", { class: "faint" }, ` of producer ${one.producer_id}`)));
  }
  const mark = one.transaction && one.transaction !== "committed"
    && el("span", { class: `pill ${one.transaction === "aborted" ? "failed" : "warned"}` }, one.transaction);
  const headers = one.headers.map(([name, value]) => el("span", {}, el("b", {}, name), " ", value === null ? "null" : shown(value, format)));
  if (one.more_headers) headers.push(el("span", { class: "faint" }, `${one.more_headers} more`));
  time.title = `${one.timestamp_type}, ${one.codec}, leader epoch ${one.leader_epoch}`;
  return el("tr", { class: "record", "data-row": true, tabindex: "-1" }, offset, time, el("td", {}, cell(one.key, format, "key")),
    el("td", {}, mark, cell(one.value, format, "value")), el("td", {}, el("div", { class: "headers" }, ...headers)));
}

function summary(found) {
  const left = [];
  if (found.left_out.aborted) left.push(plural(found.left_out.aborted, "record") + " of aborted transactions");
  if (found.left_out.control) left.push(plural(found.left_out.control, "transaction marker"));
  return `Offsets ${number(found.start)} to ${number(found.watermark)} (HW)`
    + (found.stable < found.watermark ? `, last stable offset ${number(found.stable)}: a transaction is open` : "")
    + (left.length ? `. Left out: ${left.join(", ")}` : "")
    + (found.at_end ? ". This is the end" : "");
}

const field = (text, input) => el("label", { class: "field" }, text, input);
const select = (name, ...options) => el("select", { name }, ...options.map(([value, text]) => el("option", { value }, text)));

function form() {
  const made = {
    topic: el("input", { name: "topic", required: true, list: "topics", autocomplete: "off", "data-search": true, size: 24 }),
    partition: el("input", { name: "partition", type: "number", min: "0", value: "0", required: true, class: "small" }),
    from: select("from", ["last", "the end"], ["offset", "an offset"], ["time", "a time"]),
    offset: el("input", { name: "offset", type: "number", min: "0", value: "0" }),
    time: el("input", { name: "time", type: "datetime-local", step: "1" }),
    limit: select("limit", ["50", "50"], ["10", "10"], ["200", "200"], ["500", "500"]),
    isolation: select("isolation", ["read_committed", "read_committed"], ["read_uncommitted", "read_uncommitted"]),
    format: select("format", ["auto", "as it is"], ["text", "text"], ["json", "JSON"], ["hex", "hex"]),
  };
  made.offsetField = field("Offset", made.offset);
  made.timeField = field("Time (local)", made.time);
  return made;
}

function queryOf(asked) {
  const query = new URLSearchParams({ limit: asked.limit.value, isolation: asked.isolation.value });
  if (asked.from.value === "offset") query.set("offset", asked.offset.value || "0");
  if (asked.from.value === "time" && asked.time.value) query.set("time", String(new Date(asked.time.value).getTime()));
  return query;
}

async function suggestTopics(list, partitions) {
  const found = await get("/api/cluster?limit=200&internal=1");
  const topics = [...new Set(found.document.partitions.rows.map((each) => each.topic))];
  list.replaceChildren(...topics.map((topic) => el("option", { value: topic })));
  return topics;
}

export async function records(place, [topic, rest]) {
  const [partition, query] = (rest || "0").split("?");
  const given = new URLSearchParams(query);
  const asked = form();
  const topics = el("datalist", { id: "topics" });
  const error = el("p", { class: "error", role: "alert" });
  const note = el("span", { class: "count", id: "read-note" });
  const body = el("tbody");
  const table = el("table", { id: "records", hidden: true }, el("thead", {}, el("tr", {}, ...["Offset", "Time (UTC)", "Key", "Value", "Headers"].map(
    (name) => el("th", { scope: "col", class: name === "Offset" ? "number" : null }, name)))), body);
  const empty = el("p", { class: "empty", hidden: true }, "No records here.");
  const older = el("button", { type: "button", disabled: true }, "Older");
  const newer = el("button", { type: "button", disabled: true }, "Newer");
  let found = null;

  const choose = () => {
    asked.offsetField.hidden = asked.from.value !== "offset";
    asked.timeField.hidden = asked.from.value !== "time";
  };
  const draw = () => {
    if (!found) return;
    body.replaceChildren(...found.records.map((one) => row(one, asked.format.value)));
    table.hidden = !found.records.length;
    empty.hidden = found.records.length > 0;
    say(note, summary(found));
    older.disabled = found.from <= found.start;
    newer.disabled = false;
  };
  const read = async () => {
    say(error, "");
    try {
      const path = `/api/topics/${encodeURIComponent(asked.topic.value.trim())}/${asked.partition.value}/records?${queryOf(asked)}`;
      found = (await get(path)).document;
      draw();
    } catch (failure) {
      say(error, failure.message);
    }
  };
  const from = (offset) => {
    asked.from.value = "offset";
    asked.offset.value = String(Math.max(offset, 0));
    choose();
    read();
  };
  older.addEventListener("click", () => from(Math.max(found.from - Number(asked.limit.value), found.start)));
  newer.addEventListener("click", () => from(found.next));
  asked.from.addEventListener("change", choose);
  asked.format.addEventListener("change", draw);

  place.append(el("section", { class: "panel", "aria-labelledby": "records-title" },
    el("header", {}, el("h2", { id: "records-title" }, "Records "), note, el("div", { class: "right" }, older, newer)),
    el("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); read(); } },
      field("Topic", asked.topic), topics, field("Partition", asked.partition), field("From", asked.from), asked.offsetField, asked.timeField,
      field("Records", asked.limit), field("Isolation", asked.isolation), field("Shown as", asked.format),
      el("button", { class: "first" }, "Read")),
    error, el("div", { class: "scroll" }, table), empty));
  choose();
  if (given.has("offset")) {
    asked.from.value = "offset";
    asked.offset.value = given.get("offset");
    choose();
  }
  if (topic) {
    asked.topic.value = topic;
    asked.partition.value = partition;
    read();
  }
  try {
    const known = await suggestTopics(topics);
    if (!topic && known.length) asked.topic.value = known.find((each) => !each.startsWith("__")) || known[0];
  } catch (failure) {
    say(error, failure.message);
  }
}
