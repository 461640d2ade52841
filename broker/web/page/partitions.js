// The table of partitions. A row changes in place, and a change of leader or ISR is marked and said.

import { color, el, flash, number, redo, say, span, sync } from "./dom.js";
import { canTellWhy, tellWhy } from "./why.js";

const STATES = {
  ok: ["in sync", "good", "every replica is in the ISR"],
  under_replicated: ["under-replicated", "warned", "the ISR is smaller than the replicas"],
  under_min_isr: ["under min ISR", "failed", "acks=all is refused: too few replicas are in sync"],
  offline: ["offline", "failed", "no member of the ISR can lead"],
  unheard: ["leader silent", "warned", "the leader does not answer this broker: offsets are not known"],
};
const HEADS = [
  ["Partition"], ["State"], ["Leader", "and its epoch"], ["Replicas", "filled: leader; tinted: in the ISR; dashed: out of it"],
  ["LEO", "log end offset of the leader"], ["HW", "high watermark: consumers see what is below"], ["Followers, as the leader sees them"],
];

let shown = new Map(); // the rows by name, as they were drawn last

function make(row) {
  const name = el("a", { class: "name", href: `#/records/${encodeURIComponent(row.topic)}/${row.partition}`, title: "Read its records" },
    row.topic, el("small", {}, `-${row.partition}`));
  return el("tr", { "data-row": true, tabindex: "-1" }, el("td", {}, name), el("td", {}, pillOf(row)), el("td", { class: "leader" }),
    el("td", { class: "isr" }), el("td", { class: "number end" }), el("td", { class: "number mark" }), el("td", { class: "behind" }));
}

/** The state; a button where the broker can tell why. */
function pillOf(row) {
  const made = el("span", { class: "pill" });
  canTellWhy().then((can) => {
    if (!can) return;
    const button = el("button", { type: "button", class: made.className, title: `${made.title} (why?)` }, made.textContent);
    button.addEventListener("click", () => tellWhy(shown.get(`${row.topic}-${row.partition}`)));
    made.replaceWith(button);
  });
  return made;
}

function replica(broker, row) {
  const inIsr = row.isr.includes(broker);
  const kind = broker === row.leader ? "leads" : inIsr ? "in" : "out";
  const text = broker === row.leader ? "leader" : inIsr ? "in the ISR" : "not in the ISR";
  return el("span", { class: `replica ${color(broker)} ${kind}`, title: `broker ${broker}: ${text}`, "aria-label": `${broker}, ${text}` },
    String(broker));
}

function follower(each) {
  let text = "has not fetched";
  if (each.lag === 0) text = "caught up";
  else if (each.lag !== null) text = `${number(each.lag)} behind`;
  const late = each.caught_up_s ? `, caught up ${span(each.caught_up_s)} ago` : "";
  const kind = each.registered ? (each.in_isr ? "soft" : "warn") : "bad";
  return el("span", { class: `follower ${color(each.broker)}`, title: each.end === null ? "" : `log end offset ${number(each.end)}` },
    el("b", {}, String(each.broker)), el("span", { class: kind }, each.registered ? text + late : `${text}${late}, not registered`));
}

function update(node, row) {
  const cell = (name) => node.querySelector(`.${name}`);
  const [text, kind, meaning] = STATES[row.state];
  const pill = cell("pill");
  pill.className = `pill ${kind}`;
  pill.title = pill.tagName === "BUTTON" ? `${meaning} (why?)` : meaning;
  say(pill, text);
  const led = redo(cell("leader"), [row.leader, row.epoch], () => row.leader === null
    ? el("span", { class: "bad" }, "none")
    : [replica(row.leader, row), el("span", { class: "faint mono" }, ` e${row.epoch}`)]);
  const isr = redo(cell("isr"), [row.leader, row.isr, row.replicas], () =>
    el("span", { class: "replicas" }, ...row.replicas.map((broker) => replica(broker, row))));
  if (led) flash(cell("leader"));
  if (isr) flash(cell("isr"));
  say(cell("end"), number(row.end));
  say(cell("mark"), number(row.watermark));
  redo(cell("behind"), row.followers, () => row.followers.length
    ? el("span", { class: "followers" }, ...row.followers.map(follower)) : el("span", { class: "faint" }, "–"));
  Object.assign(node.dataset, { leader: row.leader, isr: row.isr.join(), state: row.state });
  return led || isr;
}

/** `node`, and `draw(rows)`. */
export function partitionTable() {
  const body = el("tbody");
  const empty = el("p", { class: "empty" }, "Looking…");
  const heads = HEADS.map(([text, title], at) => el("th", { scope: "col", title, class: at === 4 || at === 5 ? "number" : null }, text));
  const table = el("table", { id: "partitions" }, el("thead", {}, el("tr", {}, ...heads)), body);
  const draw = (rows) => {
    const news = [];
    shown = new Map(rows.map((row) => [`${row.topic}-${row.partition}`, row]));
    sync(body, rows, (row) => `${row.topic}-${row.partition}`, make, (node, row) => {
      const fresh = node.dataset.leader === undefined;
      if (update(node, row) && !fresh) {
        news.push(`${row.topic}-${row.partition}: leader ${row.leader ?? "none"}, ISR ${row.isr.join(", ") || "empty"}`);
      }
    });
    say(empty, "No partition matches. Topics appear here as soon as they exist.");
    empty.hidden = rows.length > 0;
    table.hidden = !rows.length;
    if (news.length) say(document.getElementById("said"), news.slice(0, 5).join(". "));
  };
  return { node: el("div", { class: "scroll" }, table, empty), draw };
}
