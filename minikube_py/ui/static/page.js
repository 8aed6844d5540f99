"use strict";
// The page of a running control plane. No library, no build step; all data comes from `state`, which answers with what changed.

const $ = (id) => document.getElementById(id);
const nodes = new Map();          // name -> {zone, ready, open, pods, amounts, x, y}
let order = [];                   // names as they are laid out
let matched = null;               // names that the selector found, or null
let sequence = 0;
let session = sessionStorage.getItem("session");
let selected = null;              // what the detail panel shows: ["pod" | "node", name]
let laidOut = false, drawAsked = false;
let cell = { size: 10, gap: 2 };
const rates = [];                 // [seconds, created, bound, running]
const SHOWN_S = 60;

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { Authorization: `Bearer ${session}` }, cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.message || answer.statusText), { status: answer.status });
  return body;
}

async function login() {
  const code = location.hash.slice(1);
  if (!code) return;
  history.replaceState(null, "", location.pathname);
  session = code;
  session = (await ask("login", { method: "POST" })).session;
  sessionStorage.setItem("session", session);
}

function say(text) { if ($("link").textContent !== text) $("link").textContent = text; }

async function follow() {
  for (;;) {
    try {
      if (document.hidden) { await new Promise((go) => document.addEventListener("visibilitychange", go, { once: true })); }
      take(await ask(`state?since=${sequence}`));
      say("");
    } catch (error) {
      if (error.status === 401) { say(error.message); return; }
      say(`no answer: ${error.message}; trying again`);
      await new Promise((go) => setTimeout(go, 1000));
    }
  }
}

function take(state) {
  if (state.all) { nodes.clear(); laidOut = false; }
  for (const [name, zone, ready, open, pods, amounts] of state.nodes) {
    const old = nodes.get(name);
    if (!old || old.zone !== zone) laidOut = false;
    nodes.set(name, { ...old, zone, ready, open, pods, amounts });
  }
  for (const name of state.gone) { nodes.delete(name); laidOut = false; }
  sequence = state.sequence;
  if (state.nodes.length) offerResources(state.nodes);
  rates.push([state.now, state.totals.created, state.totals.bound, state.totals.running]);
  while (rates.length > 2 && rates[0][0] < state.now - SHOWN_S) rates.shift();
  showCounts(state);
  showWaiting(state);
  showPairs($("store"), Object.entries(state.store).map(([name, value]) => [name.replace("raft_", "").replaceAll("_", " "), value.toLocaleString("en")]));
  $("latencies").tBodies[0].replaceChildren(...Object.entries(state.latency_s).map(([name, [median, p99]]) => row(name, ms(median), ms(p99))));
  draw();
}

const ms = (seconds) => seconds < 10 ? `${(seconds * 1000).toFixed(1)} ms` : `${seconds.toFixed(1)} s`;
const element = (tag, text = "", more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);
function row(...cells) { const tr = element("tr"); tr.append(...cells.map((each) => element("td", each))); return tr; }
function showPairs(list, pairs) { list.replaceChildren(...pairs.flatMap(([name, value]) => [element("dt", name), element("dd", value)])); }

function showCounts(state) {
  const pairs = [["nodes", nodes.size], ["pods", state.pods], ["pending", state.pending]];
  $("counts").replaceChildren(...pairs.map(([name, value]) => {
    const box = element("div");
    box.append(element("dt", name), element("dd", value.toLocaleString("en")));
    return box;
  }));
}

let waitingShown = "";
function showWaiting(state) {
  const text = JSON.stringify([state.pending, state.waiting]);
  if (text === waitingShown) return;
  waitingShown = text;
  const items = state.waiting.map(([key, reason, created]) => {
    const item = element("li");
    const name = element("button", key, { className: "name", type: "button", onclick: () => open_("pod", key) });
    item.append(name, element("span", reason || `since ${created}`, { className: "reason" }));
    return item;
  });
  if (!items.length) items.push(element("li", "none", { className: "reason" }));
  if (state.pending > state.waiting.length) items.push(element("li", `and ${state.pending - state.waiting.length} more`));
  $("waiting").replaceChildren(...items);
}

function offerResources(rows) {
  const select = $("resource"), known = new Set([...select.options].map((each) => each.value));
  for (const name of new Set(rows.flatMap((each) => Object.keys(each[5])))) {
    if (!known.has(name)) select.append(element("option", name, { value: name }));
  }
  if (!known.size && [...select.options].some((each) => each.value === "cpu")) select.value = "cpu";
}

// --- nodes -------------------------------------------------------------------------------------------------------------

const fillOf = (node, resource) => {
  const amount = node.amounts[resource];
  return amount && amount[1] > 0 ? Math.min(1, amount[0] / amount[1]) : 0;
};

function layOut(width, height) {
  const byZone = $("group").value === "zone";
  const groups = new Map();
  for (const [name, node] of nodes) {
    const key = byZone ? node.zone : "";
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(name);
  }
  const titles = [...groups.keys()].sort();
  const title = titles.length > 1 || titles[0] ? 18 : 0;
  for (let size = 110; size >= 2; size--) {
    const gap = size > 60 ? 6 : size > 12 ? 3 : 1, columns = Math.max(1, Math.floor(width / (size + gap)));
    const rows = titles.reduce((sum, each) => sum + Math.ceil(groups.get(each).length / columns), 0);
    if (rows * (size + gap) + titles.length * title > height && size > 2) continue;
    cell = { size, gap, titles: [] };
    let y = 0;
    order = [];
    for (const each of titles) {
      if (title) { cell.titles.push([each || "no zone", y + 13]); y += title; }
      const names = groups.get(each).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      names.forEach((name, index) => {
        const node = nodes.get(name);
        node.x = (index % columns) * (size + gap);
        node.y = y + Math.floor(index / columns) * (size + gap);
        order.push(name);
      });
      y += Math.ceil(names.length / columns) * (size + gap);
    }
    break;
  }
  laidOut = true;
}

function canvasOf(id) {
  const canvas = $(id), scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    if (id === "nodes") laidOut = false;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["ground", "text", "quiet", "line", "accent", "empty", "full", "down", "match"].map((each) => [each, style.getPropertyValue(`--${each}`).trim()]));
};

function draw() {
  if (drawAsked) return;
  drawAsked = true;
  requestAnimationFrame(() => { drawAsked = false; drawNodes(); drawRates(); });
}

function drawNodes() {
  const { pen, width, height } = canvasOf("nodes"), paint = colours(), resource = $("resource").value;
  if (!laidOut) layOut(width, height);
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = paint.quiet;
  for (const [text, y] of cell.titles || []) pen.fillText(text, 0, y);
  let full = 0;
  for (const name of order) {
    const node = nodes.get(name), { x, y } = node, size = cell.size, fill = fillOf(node, resource);
    full += fill;
    const found = matched === null || matched.has(name);
    pen.globalAlpha = found ? 1 : 0.25;
    pen.fillStyle = paint.empty;
    pen.fillRect(x, y, size, size);
    pen.fillStyle = paint.full;
    const high = size * fill;
    pen.fillRect(x, y + size - high, size, high);
    if (size >= 70) {
      pen.fillStyle = fill > 0.85 ? paint.ground : paint.text;
      pen.fillText(name, x + 4, y + 14, size - 8);
    }
    pen.lineWidth = size > 8 ? 2 : 1;
    if (selected && selected[0] === "node" && selected[1] === name) {
      pen.globalAlpha = 1;
      pen.setLineDash([]);
      pen.strokeStyle = paint.accent;
      const inset = size > 12 ? 3.5 : 0.5;
      pen.strokeRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
      pen.globalAlpha = found ? 1 : 0.25;
    }
    if (!node.ready) pen.strokeStyle = paint.down;
    else if (matched !== null && found) pen.strokeStyle = paint.match;
    else if (!node.open) pen.strokeStyle = paint.quiet;
    else continue;
    pen.setLineDash(node.ready && !node.open ? [3, 2] : []);
    pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  }
  pen.globalAlpha = 1;
  const share = order.length ? Math.round((100 * full) / order.length) : 0;
  $("nodes").setAttribute("aria-label", `${order.length} nodes; on average ${share} % of ${resource} is requested`);
}

function nodeAt(event) {
  const box = $("nodes").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  return order.find((name) => {
    const node = nodes.get(name);
    return x >= node.x && x < node.x + cell.size && y >= node.y && y < node.y + cell.size;
  });
}

function describe(name) {
  const node = nodes.get(name);
  const amounts = Object.entries(node.amounts).map(([resource, [used, all]]) => `${resource} ${amountText(resource, used)} of ${amountText(resource, all)}`);
  return `${name}${node.ready ? "" : ", not ready"}${node.open ? "" : ", cordoned"}: ${amounts.join(", ")}`;
}

function amountText(resource, amount) {
  if (resource === "cpu") return (amount / 1000).toLocaleString("en");
  if (resource === "memory" || resource.startsWith("hugepages") || resource === "ephemeral-storage") return `${(amount / 2 ** 30).toFixed(1)}Gi`;
  return amount.toLocaleString("en");
}

$("nodes").addEventListener("mousemove", (event) => {
  const name = nodeAt(event);
  $("hover").textContent = name ? describe(name) : "";
});
$("nodes").addEventListener("click", (event) => { const name = nodeAt(event); if (name) open_("node", name); });
$("nodes").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (event.key === "Enter" && selected && selected[0] === "node") open_("node", selected[1]);
  if (!step || !order.length) return;
  event.preventDefault();
  const at = selected && selected[0] === "node" ? order.indexOf(selected[1]) : -1;
  selected = ["node", order[(at + step + order.length) % order.length]];
  $("hover").textContent = describe(selected[1]);
  draw();
});
for (const id of ["resource", "group"]) $(id).addEventListener("change", () => { laidOut = false; draw(); });
addEventListener("resize", draw);

// --- a field selector, as it is typed ------------------------------------------------------------------------------------

let typed = 0;
async function match() {
  const text = $("where").value.trim(), mine = ++typed;
  if (!text) { matched = null; $("found").textContent = ""; $("where").removeAttribute("aria-invalid"); $("found-key").hidden = true; draw(); return; }
  try {
    const { names } = await ask(`match?where=${encodeURIComponent(text)}`);
    if (mine !== typed) return;
    matched = new Set(names);
    $("found").textContent = `${names.length} of ${nodes.size} nodes`;
    $("where").removeAttribute("aria-invalid");
  } catch (error) {
    if (mine !== typed) return;
    matched = null;
    $("found").textContent = error.message;
    $("where").setAttribute("aria-invalid", "true");
  }
  $("found-key").hidden = matched === null;
  draw();
}
let pause = 0;
$("where").addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(match, 150); });
setInterval(() => { if (matched !== null && !document.hidden) match(); }, 2000);

// --- rates ----------------------------------------------------------------------------------------------------------------

function drawRates() {
  const { pen, width, height } = canvasOf("rates"), paint = colours();
  if (rates.length < 2) return;
  const now = rates.at(-1)[0], series = [["bound", 2, paint.full], ["running", 3, paint.match]];
  const points = new Map(series.map(([name, at]) => [name, perSecond(at, now)]));
  const top = Math.max(10, ...[...points.values()].flat().map(([, value]) => value));
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = paint.quiet;
  pen.fillText(`${Math.round(top).toLocaleString("en")} pods/s`, 2, 11);
  pen.fillText("60 s ago", 2, height - 2);
  pen.textAlign = "right";
  pen.fillText("now", width - 2, height - 2);
  pen.textAlign = "left";
  series.forEach(([name, , colour], index) => {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.5;
    pen.setLineDash(index ? [4, 3] : []);
    pen.beginPath();
    for (const [at, value] of points.get(name)) pen.lineTo(width * (1 - (now - at) / SHOWN_S), height - 14 - (height - 30) * (value / top));
    pen.stroke();
    pen.fillText(`${name} ${Math.round((points.get(name).at(-1) || [0, 0])[1])}/s`, width - 180 + 95 * index, 11);
  });
  pen.setLineDash([]);
}

function perSecond(at, now) {
  const buckets = new Map();
  for (let index = 1; index < rates.length; index++) {
    const second = Math.floor(rates[index][0]);
    buckets.set(second, (buckets.get(second) || 0) + Math.max(0, rates[index][at] - rates[index - 1][at]));
  }
  const found = [];
  for (let second = Math.ceil(Math.max(now - SHOWN_S, rates[0][0])); second < Math.floor(now); second++) found.push([second + 0.5, buckets.get(second) || 0]);
  return found;
}

// --- one pod, one node ------------------------------------------------------------------------------------------------------

let cameFrom = null;              // what had the focus before the detail panel was opened
async function open_(what, name) {
  selected = [what, name];
  if ($("detail").hidden) cameFrom = document.activeElement;
  const body = $("detail-body");
  try {
    const found = await ask(`${what}?${what === "pod" ? "key" : "name"}=${encodeURIComponent(name)}`);
    body.replaceChildren(...(what === "pod" ? podDetail(found) : nodeDetail(found)));
  } catch (error) { body.replaceChildren(element("p", error.message)); }
  $("detail-title").textContent = `${what} ${name}`;
  $("detail").hidden = false;
  $("detail").scrollIntoView({ block: "nearest" });
  $("close").focus({ preventScroll: true });
  draw();
}
$("close").addEventListener("click", () => {
  $("detail").hidden = true;
  selected = null;
  if (cameFrom && cameFrom.isConnected) cameFrom.focus();
  draw();
});

function podDetail(pod) {
  const parts = [], names = ["created", "bound", "running"].filter((each) => pod.moments[each]);
  const times = element("ul", "", { className: "times" });
  if (!pod.moments.created) times.append(line("created", pod.created));
  for (const each of names) times.append(line(each, each === "created" ? new Date(pod.moments.created * 1000).toLocaleTimeString("en-GB") : `+ ${ms(pod.moments[each] - (pod.moments.created || pod.moments[names[0]]))}`));
  parts.push(element("p", `${pod.phase || "no phase"}${pod.node ? ` on ${pod.node}` : ""}${pod.terminating ? ", terminating" : ""}`), times);
  if (pod.reason) parts.push(element("p", pod.reason, { className: "reason" }));
  const why = pod.explained;
  if (why && why.problem) parts.push(element("p", why.problem, { className: "reason" }));
  else if (why) parts.push(element("h2", "Why this node"), ...whyNodes(why));
  return parts;
}

function line(name, text) { const item = element("li"); item.append(element("span", name), element("span", text)); return item; }

function whyNodes(why) {
  const parts = [];
  if (why.message) parts.push(element("p", why.message, { className: "reason" }));
  for (const each of why.changes || []) parts.push(element("p", `To fit, ${each.change}.`, { className: "reason" }));
  const table = element("table"), head = element("thead"), body = element("tbody");
  head.append(row("node", "score", "by plugin"));
  for (const each of why.nodes || []) {
    const detail = each.fits ? each.scores.map((score) => `${score.plugin} ${score.weighted}`).join(", ") : `${each.plugin}: ${each.reasons.join(", ")}`;
    body.append(row(each.node, each.fits ? String(each.total) : "no", detail));
  }
  table.append(head, body);
  if (body.children.length) parts.push(element("p", `${why.fits} of ${why.of} nodes fit now; the ones that rank first:`, { className: "reason" }), table);
  return parts;
}

function nodeDetail(node) {
  const list = element("ul", "", { className: "times" });
  for (const [key, phase, requests] of node.pods.slice(0, 200)) {
    const item = element("li");
    const amounts = Object.entries(requests).filter(([name]) => name !== "pods").map(([name, amount]) => `${name} ${amountText(name, amount)}`);
    item.append(element("button", key, { className: "name", type: "button", onclick: () => open_("pod", key) }), element("span", `${phase} ${amounts.join(", ")}`, { className: "reason" }));
    list.append(item);
  }
  return [element("p", node.pods.length === 1 ? "1 pod" : `${node.pods.length.toLocaleString("en")} pods`), list];
}

login().catch((error) => say(error.message)).then(() => {
  if (session) follow();
  else say("open the link that `minikube-py up --ui` printed; it works once");
});
