// Consumer groups with their lag; one of them with members and offsets.

import { el, number, plural, redo, say, sync } from "./dom.js";
import { poll } from "./live.js";

const heads = (...names) => el("thead", {}, el("tr", {}, ...names.map((name) => {
  const [text, kind] = [name].flat();
  return el("th", { scope: "col", class: kind }, text);
})));

function row(one) {
  return [
    el("td", {}, el("a", { class: "name", href: `#/groups/${encodeURIComponent(one.name)}` }, one.name || "(no name)")),
    el("td", {}, one.state),
    el("td", {}, one.type),
    el("td", { class: "number" }, number(one.member_count)),
    el("td", { class: "number" }, number(one.partitions)),
    el("td", { class: "number" }, number(one.lag)),
    el("td", { class: "number" }, String(one.coordinator)),
  ];
}

function list(place) {
  const search = el("input", { type: "search", placeholder: "group", "aria-label": "Search groups", oninput: () => loop.turn() });
  const body = el("tbody");
  const count = el("span", { class: "count" });
  const empty = el("p", { class: "empty" }, "Looking…");
  const table = el("table", { id: "groups" }, heads("Group", "State", "Protocol", ["Members", "number"], ["Partitions", "number"],
    ["Lag", "number"], ["Coordinator", "number"]), body);
  place.append(el("section", { class: "panel", "aria-labelledby": "groups-title" },
    el("header", {}, el("h2", { id: "groups-title" }, "Consumer groups ", count), el("div", { class: "right" }, search)),
    el("div", { class: "scroll" }, table), empty));
  const loop = poll(() => `/api/groups?${new URLSearchParams({ search: search.value.trim() })}`, 2000, (found) => {
    sync(body, found.rows, (one) => one.name, () => el("tr", { "data-row": true, tabindex: "-1" }), (node, one) => {
      const focused = node.contains(document.activeElement);
      if (redo(node, one, row) && focused) node.querySelector("a").focus();
      else redo(node, one, row);
    });
    say(count, found.matching > found.rows.length ? `first ${found.rows.length} of ${number(found.matching)}` : number(found.matching));
    const silent = Object.keys(found.silent);
    say(empty, silent.length ? `Brokers ${silent.join(", ")} do not answer: groups that they coordinate are not shown.`
      : found.loading.length ? `Brokers ${found.loading.join(", ")} are still reading the groups that they coordinate.`
        : "No group matches. A group appears when its first member joins or an offset is committed.");
    empty.hidden = found.rows.length > 0 && !silent.length && !found.loading.length;
    table.hidden = !found.rows.length;
  });
}

const assigned = (member) => (member.assignment === null ? "not readable" : member.assignment.map(([topic, at]) => `${topic}-${at}`).join(", ") || "none");

function memberRow(one) {
  return el("tr", { "data-row": true, tabindex: "-1" }, el("td", { class: "mono" }, one.id), el("td", {}, one.instance || "–"), el("td", {}, one.client),
    el("td", {}, one.host), el("td", { class: "mono" }, assigned(one)));
}

function offsetRow(one) {
  return el("tr", { "data-row": true, tabindex: "-1" },
    el("td", {}, el("a", { class: "name", href: `#/records/${encodeURIComponent(one.topic)}/${one.partition}?offset=${one.committed}` },
      one.topic, el("small", {}, `-${one.partition}`))),
    el("td", { class: "number" }, number(one.committed)), el("td", { class: "number" }, number(one.watermark)),
    el("td", { class: one.lag ? "number warn" : "number" }, number(one.lag)), el("td", { class: "mono" }, one.member || "–"));
}

function details(found) {
  const panel = (title, count, ...table) => el("section", { class: "panel" }, el("header", {}, el("h2", {}, `${title} `, el("span", { class: "count" }, number(count)))),
    count ? el("div", { class: "scroll" }, el("table", {}, ...table)) : el("p", { class: "empty" }, "None."));
  return [
    el("div", { class: "summary" }, el("b", {}, found.name), el("span", { class: "pill" }, found.state), el("span", {}, `${found.type} protocol`),
      el("span", {}, `generation ${found.generation}`), el("span", {}, `coordinated by broker ${found.coordinator}`),
      el("span", {}, "lag ", el("b", {}, number(found.lag))), el("span", {}, plural(found.member_count, "member"))),
    panel("Members", found.member_count, heads("Member", "Instance", "Client", "Host", "Partitions"), el("tbody", {}, ...found.members.map(memberRow))),
    panel("Offsets", found.offset_count ?? found.offsets.length, heads("Partition", ["Committed", "number"], ["HW", "number"], ["Lag", "number"], "Member"),
      el("tbody", {}, ...found.offsets.map(offsetRow))),
  ];
}

function one(place, name) {
  const found = el("div", { class: "details", id: "group" }, el("p", { class: "empty" }, "Looking…"));
  place.append(el("a", { href: "#/groups" }, "All groups"), found);
  poll(() => `/api/groups/${encodeURIComponent(name)}`, 2000, (document) => redo(found, document, details));
}

export const groups = (place, [name]) => (name === undefined ? list(place) : one(place, name));
