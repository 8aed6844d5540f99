// The page of runs in virtual time: recording.py says what `data` holds. Going back plays a run again from its start.

const [NODE_PUT, NODE_GONE, POD_PUT, POD_GONE] = [0, 1, 2, 3];
const WAITING_SHOWN = 50, STEPS = 600;

/** One recording, and its state after the moments that were played. */
class Run {
  constructor(data, number) {
    this.data = data;
    this.end = data.moments.length ? data.moments.at(-1)[0] : 0;
    this.section = element("section", "", { className: "run" });
    const id = `run-${number}`, canvas = element("canvas");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    this.counts = element("dl", "", { className: "counts" });
    this.hover = element("p", "", { className: "hover" });
    this.hover.setAttribute("role", "status");
    this.waiting = element("ul", "", { className: "waiting" });
    this.section.setAttribute("aria-labelledby", id);
    const scrolled = element("div", "", { className: "scrolled", tabIndex: 0 });
    scrolled.setAttribute("role", "region");
    scrolled.setAttribute("aria-label", `Waiting pods of ${data.title}`);
    scrolled.append(this.waiting);
    this.section.append(element("h2", data.title, { id }), this.counts, canvas, this.hover, element("h3", "Waiting pods"), scrolled);
    this.grid = new Grid(canvas);
    this.reset();
  }

  reset() {
    this.played = 0;
    this.pods = new Map();          // key -> [row, node, phase, reason]
    this.used = new Map();          // node -> {resource: amount}
    this.held = new Map();          // node -> how many pods
    this.waits = new Map();         // key -> reason
    this.totals = { created: 0, bound: 0, deleted: 0 };
    this.grid.nodes.clear();
    this.grid.laidOut = false;
  }

  to(seconds) {
    const { moments } = this.data;
    if (this.played && moments[this.played - 1][0] > seconds) this.reset();
    while (this.played < moments.length && moments[this.played][0] <= seconds) this.apply(moments[this.played++]);
  }

  apply([, what, number, ...names]) {
    if (what === NODE_PUT || what === NODE_GONE) this.node(what, this.data.nodes[number]);
    else this.pod(what, number, names.map((each) => this.data.names[each]));
  }

  node(what, [name, zone, ready, open, allocatable]) {
    const { nodes } = this.grid, old = nodes.get(name);
    if (!old || old.zone !== zone || what === NODE_GONE) this.grid.laidOut = false;
    if (what === NODE_GONE) { nodes.delete(name); return; }
    nodes.set(name, { ...old, zone, ready, open, allocatable, amounts: {} });
    this.fill(name);
  }

  pod(what, number, [node, phase, reason]) {
    const key = this.data.pods[number][0], old = this.pods.get(key);
    if (old) this.account(old, -1);
    else this.totals.created++;
    if (what === POD_GONE) {
      this.pods.delete(key);
      this.waits.delete(key);
      this.totals.deleted++;
      return;
    }
    const now = [number, node, phase];
    this.pods.set(key, now);
    this.account(now, 1);
    if (node && !(old && old[1])) this.totals.bound++;
    if (node || ["Succeeded", "Failed", "Terminating"].includes(phase)) this.waits.delete(key);
    else this.waits.set(key, reason);
  }

  account([number, node], sign) {
    if (!node) return;
    const used = this.used.get(node) || {};
    for (const [resource, amount] of Object.entries(this.data.pods[number][1])) used[resource] = (used[resource] || 0) + sign * amount;
    this.used.set(node, used);
    this.held.set(node, (this.held.get(node) || 0) + sign);
    this.fill(node);
  }

  fill(name) {
    const node = this.grid.nodes.get(name), used = this.used.get(name) || {};
    if (node) for (const [resource, all] of Object.entries(node.allocatable)) node.amounts[resource] = [used[resource] || 0, all];
  }

  /** Of all nodes together. */
  share(resource) {
    let used = 0, all = 0;
    for (const { amounts } of this.grid.nodes.values()) {
      const [one, of] = amounts[resource] || [0, 0];
      used += one;
      all += of;
    }
    return all > 0 ? used / all : 0;
  }

  running() {
    let count = 0;
    for (const [, , phase] of this.pods.values()) count += phase === "Running";
    return count;
  }

  show(resource) {
    const { created, bound, deleted } = this.totals, occupied = [...this.held.values()].filter((each) => each > 0).length;
    showCounts(this.counts, [["nodes", this.grid.nodes.size], ["of them used", occupied], ["pods created", created], ["bound", bound],
      ["running", this.running()], ["waiting", this.waits.size], ["deleted", deleted], [`${resource} requested, %`, Math.round(1000 * this.share(resource)) / 10]]);
    const items = [...this.waits].slice(0, WAITING_SHOWN).map(([key, reason]) => {
      const item = element("li", key);
      item.append(element("span", reason, { className: "reason" }));
      return item;
    });
    if (!items.length) items.push(element("li", "none", { className: "reason" }));
    if (this.waits.size > WAITING_SHOWN) items.push(element("li", `and ${this.waits.size - WAITING_SHOWN} more`));
    this.waiting.replaceChildren(...items);
    this.grid.draw(resource);
  }

  /** [seconds, share] at equal steps, from a run of its own. */
  series(resource, end) {
    const other = new Run(this.data, "series"), points = [];
    for (let step = 0; step <= STEPS; step++) {
      const seconds = (end * step) / STEPS;
      other.to(seconds);
      points.push([seconds, other.share(resource)]);
    }
    return points;
  }
}

const runs = JSON.parse($("data").textContent).map((each, number) => new Run(each, number));
const end = Math.max(0.001, ...runs.map((each) => each.end));
// Components start first, which is nothing to look at.
const begin = Math.min(end, ...runs.map((each) => (each.data.moments[0] || [0])[0]));
const moment = (seconds) => end < 1 ? `${(1000 * seconds).toFixed(3)} ms` : `${seconds.toFixed(3)} s`;
let lines = [], asked = false, playing = 0;

function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const now = Number($("slider").value), text = `${moment(now)} of ${moment(end)}`;
    $("now").textContent = text;
    $("slider").setAttribute("aria-valuetext", text);
    for (const run of runs) {
      run.to(now);
      run.show($("resource").value);
    }
    drawChart(now);
  });
}

function drawChart(now) {
  const { pen, width, height } = cleared($("chart")), paint = colours(), across = (seconds) => width * ((seconds - begin) / Math.max(1e-9, end - begin));
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = paint.quiet;
  const top = Math.max(0.01, ...lines.flat().map(([, share]) => share));
  const title = `top: ${(100 * top).toFixed(1)} % of ${$("resource").value} requested`;
  pen.fillText(title, 2, 11);
  let right = 2 + pen.measureText(title).width;
  lines.forEach((points, index) => {
    pen.strokeStyle = pen.fillStyle = index ? paint.match : paint.accent;
    pen.setLineDash(index ? [5, 3] : []);
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const [seconds, share] of points) pen.lineTo(across(Math.max(begin, seconds)), height - 3 - (height - 22) * (share / top));
    pen.stroke();
    if (runs.length > 1) {
      const name = `${index ? "dashed" : "solid"}: ${runs[index].data.title}`;
      pen.fillText(name, right + 24, 11);
      right += 24 + pen.measureText(name).width;
    }
  });
  pen.setLineDash([]);
  pen.strokeStyle = paint.text;
  pen.beginPath();
  pen.moveTo(across(now), 16);
  pen.lineTo(across(now), height);
  pen.stroke();
}

function chosen() {
  lines = runs.map((each) => each.series($("resource").value, end));
  draw();
}

function step(last) {
  if (!playing) return;
  playing = requestAnimationFrame((stamp) => {
    const slider = $("slider"), now = Number(slider.value) + ((stamp - last) / 1000) * Number($("speed").value);
    slider.value = Math.min(now, end);
    draw();
    if (now >= end) pause();
    else step(stamp);
  });
}

function pause() {
  cancelAnimationFrame(playing);
  playing = 0;
  $("play").textContent = "play";
}

$("play").addEventListener("click", () => {
  if (playing) { pause(); return; }
  if (Number($("slider").value) >= end) $("slider").value = begin;
  $("play").textContent = "pause";
  playing = 1;
  step(performance.now());
});

function watch(run) {
  const { grid, hover } = run, { canvas } = grid;
  canvas.addEventListener("mousemove", (event) => { const name = grid.at(event); hover.textContent = name ? grid.describe(name) : ""; });
  canvas.addEventListener("keydown", (event) => {
    const next = grid.after(event.key);
    if (!next) return;
    event.preventDefault();
    grid.selected = next;
    hover.textContent = grid.describe(grid.selected);
    draw();
  });
}

$("what").textContent = runs.map((each) => each.data.title + (each.data.left_out ? ` (the first ${each.data.moments.length.toLocaleString("en")} changes; ${each.data.left_out.toLocaleString("en")} came after)` : "")).join(" and ");
$("runs").append(...runs.map((each) => each.section));
runs.forEach(watch);
offerResources($("resource"), runs.flatMap((each) => each.data.nodes.flatMap((node) => Object.keys(node[4]))));
for (const seconds of [1, 3, 10, 30, 100]) {
  $("speed").append(element("option", `${seconds} s`, { value: (end - begin) / seconds, selected: seconds === 10 }));
}
Object.assign($("slider"), { min: begin, max: end });
$("slider").value = end;
$("slider").addEventListener("input", draw);
$("resource").addEventListener("change", chosen);
$("group").addEventListener("change", () => { for (const { grid } of runs) { grid.groupedBy = $("group").value === "zone" ? "zone" : ""; grid.laidOut = false; } draw(); });
addEventListener("resize", draw);
chosen();
