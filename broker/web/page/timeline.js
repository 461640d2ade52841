// Who led each partition from when until when, and who was in its ISR; above, what became of the brokers.
//
// In a lane the bar is the leader, in its broker's color; below it a thin line for each replica, drawn while
// it is in the ISR. Time runs to the right, up to the broker's present.

import { clock, color, el, plural, svg } from "./dom.js";
import { now, poll } from "./live.js";

const RANGES = [["1 min", 60], ["5 min", 300], ["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["1 d", 86400]];
const LABEL = 150;
const BAR = 15;
const THIN = 4;
const WIDTH_MIN = 480;

class Scale {
  constructor(width, seconds) {
    Object.assign(this, { width, to: now(), from: now() - seconds * 1000 });
  }

  /** Where a moment lies; null is before the beginning. */
  x(ms) {
    const part = (Math.min(Math.max(ms ?? this.from, this.from), this.to) - this.from) / (this.to - this.from);
    return LABEL + part * (this.width - LABEL - 8);
  }

  sees(from, to) {
    return (to ?? this.to) >= this.from && (from ?? this.from) <= this.to;
  }
}

function bar(scale, y, height, from, to, props, title, text = "") {
  if (!scale.sees(from, to)) return [];
  const left = scale.x(from);
  const width = Math.max(scale.x(to ?? scale.to) - left, 1.5);
  const made = [svg("rect", { x: left, y, width, height, rx: Math.min(3, height / 2), ...props }, svg("title", {}, title))];
  if (text && width > 8 * text.length + 8) {
    made.push(svg("text", { class: props.class.replace("lead", "on"), x: left + 6, y: y + height - 4 }, text));
  }
  return made;
}

function axis(scale, height, seconds) {
  const made = [];
  const steps = Math.max(2, Math.min(6, Math.floor((scale.width - LABEL) / 120)));
  for (let step = 0; step <= steps; step += 1) {
    const ms = scale.from + (step / steps) * seconds * 1000;
    const x = scale.x(ms);
    made.push(svg("line", { class: "axis", x1: x, x2: x, y1: 18, y2: height }),
      svg("text", { x, y: 12, "text-anchor": step === steps ? "end" : "middle" }, clock(ms).slice(0, seconds < 600 ? 8 : 5)));
  }
  return made;
}

const THERE = { came: true, gone: false, suspected: false };

/** From when until when a broker was there, or away. Before the first event it was there if that ends it. */
function presence(points) {
  const found = [];
  let there = points.length && points[0].kind !== "came" && points[0].kind !== "controller" ? true : null;
  let since = null;
  for (const point of points) {
    const next = THERE[point.kind] ?? (there === false ? false : true);
    if (next === there) continue;
    if (there !== null) found.push([there, since, point.at_ms]);
    [there, since] = [next, point.at_ms];
  }
  return there === null ? found : [...found, [there, since, null]];
}

/** A line for each broker: drawn through while it is there, with a mark for each event. */
function brokerLane(scale, y, broker, points) {
  const made = [svg("text", { class: "lane", x: 0, y: y + 5 }, `broker ${broker}`)];
  for (const [there, from, to] of presence(points)) {
    if (!scale.sees(from, to)) continue;
    made.push(svg("line", { class: `${there ? "alive" : "away"} ${color(broker)}`, y1: y, y2: y,
      x1: scale.x(from), x2: scale.x(to ?? scale.to) }));
  }
  for (const point of points.filter((each) => scale.sees(each.at_ms, each.at_ms))) {
    const gone = THERE[point.kind] === false;
    made.push(svg("circle", { class: `event ${color(broker)} ${gone ? "gone" : point.kind}`, cx: scale.x(point.at_ms), cy: y, r: 4.5 },
      svg("title", {}, `${clock(point.at_ms)} ${point.sentence}`)));
  }
  return made;
}

function lane(scale, y, one, brokers) {
  const made = [svg("text", { class: "lane", x: 0, y: y + 12 }, short(`${one.topic}-${one.partition}`),
    svg("title", {}, `${one.topic}-${one.partition}`))];
  for (const each of one.spans) {
    const who = each.leader === null ? "no leader" : `broker ${each.leader} leads`;
    const title = `${who} since ${each.from_ms === null ? "before what is recorded" : clock(each.from_ms)}, epoch ${each.epoch}`
      + (each.cause ? `, because ${each.cause}` : "");
    const kind = each.leader === null ? "none" : `lead ${color(each.leader)}`;
    made.push(...bar(scale, y, BAR, each.from_ms, each.to_ms, { class: kind }, title,
      each.leader === null ? "" : String(each.leader)));
  }
  brokers.forEach((broker, at) => made.push(...membership(scale, y + BAR + 2 + at * (THIN + 1), one.isr, broker)));
  return made;
}

function membership(scale, y, points, broker) {
  const made = [];
  points.forEach((point, at) => {
    if (!point.isr.includes(broker)) return;
    const next = points[at + 1];
    made.push(...bar(scale, y, THIN, point.at_ms, next ? next.at_ms : null, { class: `in ${color(broker)}` },
      `broker ${broker} is in the ISR since ${clock(point.at_ms)}`));
  });
  return made;
}

const short = (name) => (name.length > 20 ? `${name.slice(0, 9)}…${name.slice(-10)}` : name);

function membersOf(one) {
  const found = new Set(one.isr.flatMap((point) => point.isr));
  one.spans.forEach((each) => each.leader !== null && found.add(each.leader));
  return [...found].sort((a, b) => a - b);
}

function picture(found, width, seconds) {
  const scale = new Scale(Math.max(width, WIDTH_MIN), seconds);
  const brokers = [...new Set([...found.brokers.map((each) => each.broker), ...found.lanes.flatMap(membersOf)])].sort((a, b) => a - b);
  const made = [];
  let y = 34;
  for (const broker of brokers) {
    made.push(...brokerLane(scale, y, broker, found.brokers.filter((each) => each.broker === broker)));
    y += 18;
  }
  for (const one of found.lanes) {
    const members = membersOf(one);
    made.push(...lane(scale, y, one, members));
    y += BAR + 2 + members.length * (THIN + 1) + 9;
  }
  return svg("svg", { viewBox: `0 0 ${scale.width} ${y}`, height: y, role: "img", "aria-label": told(found) }, ...axis(scale, y, seconds), ...made);
}

function told(found) {
  const lanes = found.lanes.map((one) => `${one.topic}-${one.partition}: ` + one.spans.map((each) => each.leader ?? "none").join(", then "));
  return `Timeline of leaders. ${lanes.slice(0, 20).join("; ")}`;
}

/** A panel with a timeline of the partitions that `query()` names; `start()` begins to poll. */
export function timelinePanel(title, query, limit) {
  let seconds = 300;
  let known = null;
  const place = el("div", { class: "timeline", id: "timeline" });
  const note = el("span", { class: "count" });
  const draw = () => {
    if (!known) return;
    const empty = !known.lanes.length && !known.brokers.length;
    place.replaceChildren(empty ? el("p", { class: "empty" }, "Nothing has been decided yet.") : picture(known, place.clientWidth - 32, seconds));
    note.textContent = known.matching > known.lanes.length ? `first ${known.lanes.length} of ${known.matching}` : plural(known.lanes.length, "partition");
  };
  const range = el("select", { "aria-label": "Time shown", onchange: () => { seconds = Number(range.value); draw(); } },
    ...RANGES.map(([text, value]) => el("option", { value, selected: value === seconds }, text)));
  const node = el("section", { class: "panel", "aria-label": title },
    el("header", {}, el("h2", {}, `${title} `, note),
      el("div", { class: "right" }, el("span", { class: "legend" }, el("span", {}, "bar: leader"), el("span", {}, "lines: ISR")), range)),
    place);
  const path = () => {
    const asked = query();
    asked.set("limit", limit);
    return `/api/timeline?${asked}`;
  };
  const start = () => {
    const loop = poll(path, 2000, (found) => { known = found; draw(); });
    const timer = setInterval(() => (node.isConnected ? draw() : clearInterval(timer)), 1000);
    return loop;
  };
  return { node, start };
}

export function timeline(place) {
  const wanted = { search: "", internal: false };
  const query = () => new URLSearchParams({ search: wanted.search, ...(wanted.internal ? { internal: "1" } : {}) });
  const search = el("input", { type: "search", placeholder: "topic or topic-partition", "aria-label": "Search partitions",
    oninput: () => { wanted.search = search.value.trim(); loop.turn(); } });
  const box = el("input", { type: "checkbox", onchange: () => { wanted.internal = box.checked; loop.turn(); } });
  const panel = timelinePanel("Leaderships and ISRs", query, 60);
  place.append(el("div", { class: "summary" }, search, el("label", { class: "check" }, box, "internal topics")), panel.node);
  const loop = panel.start();
}
