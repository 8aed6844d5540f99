"use strict";
// What both pages share: small helpers, and the grid of nodes that fill. No library, no build step.

const $ = (id) => document.getElementById(id);
const ms = (seconds) => seconds < 10 ? `${(seconds * 1000).toFixed(1)} ms` : `${seconds.toFixed(1)} s`;
const element = (tag, text = "", more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);
function row(...cells) { const tr = element("tr"); tr.append(...cells.map((each) => element("td", each))); return tr; }
function showPairs(list, pairs) { list.replaceChildren(...pairs.flatMap(([name, value]) => [element("dt", name), element("dd", value)])); }

function showCounts(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => {
    const box = element("div");
    box.append(element("dt", name), element("dd", value.toLocaleString("en")));
    return box;
  }));
}

function amountText(resource, amount) {
  if (resource === "cpu") return (amount / 1000).toLocaleString("en");
  if (resource === "memory" || resource.startsWith("hugepages") || resource === "ephemeral-storage") return `${(amount / 2 ** 30).toFixed(1)}Gi`;
  return amount.toLocaleString("en");
}

function offerResources(select, names) {
  const known = new Set([...select.options].map((each) => each.value));
  for (const name of new Set(names)) {
    if (!known.has(name)) select.append(element("option", name, { value: name }));
  }
  if (!known.size && [...select.options].some((each) => each.value === "cpu")) select.value = "cpu";
}

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["ground", "text", "quiet", "line", "accent", "empty", "full", "down", "match"].map((each) => [each, style.getPropertyValue(`--${each}`).trim()]));
};

/** A cleared canvas of as many pixels as the screen has, and whether its size has changed. */
function cleared(canvas) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  const resized = canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale);
  if (resized) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height, resized };
}

const BAR_FROM = 26;              // boxes of fewer pixels show their share by colour, as a bar in them would be too short to read
const collator = new Intl.Collator("en", { numeric: true });

/** `steps` colours from one `#rrggbb` to another. */
function ramp(from, to, steps) {
  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)), [first, last] = [channels(from), channels(to)];
  return Array.from({ length: steps }, (_, step) => `rgb(${first.map((each, at) => Math.round(each + ((last[at] - each) * step) / (steps - 1))).join()})`);
}

/** Nodes as boxes on a canvas. `nodes`: name -> {zone: value of the label that groups, ready, open, pods, amounts: {resource: [used, allocatable]}}. */
class Grid {
  constructor(canvas) {
    this.canvas = canvas;
    this.nodes = new Map();
    this.order = [];              // names as they are laid out
    this.matched = null;          // names that a selector found, or null
    this.selected = null;         // a name
    this.groupedBy = "zone";      // what a group without a value is said to lack; "" for no groups
    this.laidOut = false;
    this.cell = { size: 10, gap: 2, titles: [] };
  }

  layOut(width, height) {
    const groups = new Map();
    for (const [name, node] of this.nodes) {
      const key = this.groupedBy ? node.zone : "";
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(name);
    }
    const parts = [...groups.keys()].sort().map((each) => [each, groups.get(each).sort(collator.compare)]), title = parts.length > 1 || parts[0]?.[0] ? 18 : 0;
    const together = [[`${parts.length.toLocaleString("en")} groups, too many for a title each; their nodes follow one another`, parts.flatMap(([, names]) => names)]];
    if (!this.fit(parts, title, width, height, parts.length < 2)) this.fit(together, title, width, height, true);
    this.laidOut = true;
  }

  /** Places the groups with the largest boxes that fit; false if none do, unless they `must` be placed. */
  fit(groups, title, width, height, must) {
    for (let size = 110; size >= 2; size--) {
      const gap = size > 60 ? 6 : size > 12 ? 3 : 1, columns = Math.max(1, Math.floor(width / (size + gap)));
      const rows = groups.reduce((sum, [, names]) => sum + Math.ceil(names.length / columns), 0);
      if (rows * (size + gap) + groups.length * title > height && !(must && size === 2)) continue;
      this.place(groups, size, gap, columns, title);
      return true;
    }
    return false;
  }

  place(groups, size, gap, columns, title) {
    this.cell = { size, gap, titles: [] };
    this.order = [];
    let y = 0;
    for (const [zone, names] of groups) {
      if (title) { this.cell.titles.push([zone || `no ${this.groupedBy}`, y + 13]); y += title; }
      names.forEach((name, index) => {
        const node = this.nodes.get(name);
        node.x = (index % columns) * (size + gap);
        node.y = y + Math.floor(index / columns) * (size + gap);
        this.order.push(name);
      });
      y += Math.ceil(names.length / columns) * (size + gap);
    }
  }

  draw(resource) {
    const { pen, width, height, resized } = cleared(this.canvas), paint = colours();
    if (resized || !this.laidOut) this.layOut(width, height);
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = paint.quiet;
    for (const [text, y] of this.cell.titles) pen.fillText(text, 0, y);
    paint.ramp = this.cell.size < BAR_FROM ? ramp(paint.empty, paint.full, 32) : null;
    $("scale")?.classList.toggle("colour", Boolean(paint.ramp));
    let full = 0;
    for (const name of this.order) full += this.drawNode(pen, paint, name, resource);
    pen.globalAlpha = 1;
    const share = this.order.length ? Math.round((100 * full) / this.order.length) : 0;
    this.canvas.setAttribute("aria-label", `${this.order.length} nodes; on average ${share} % of ${resource} is requested`);
  }

  drawNode(pen, paint, name, resource) {
    const node = this.nodes.get(name), { x, y } = node, size = this.cell.size;
    const [used, all] = node.amounts[resource] || [0, 0], fill = all > 0 ? Math.min(1, used / all) : 0;
    const found = this.matched === null || this.matched.has(name), high = size * fill;
    pen.globalAlpha = found ? 1 : 0.25;
    pen.fillStyle = paint.ramp ? paint.ramp[Math.ceil(fill * (paint.ramp.length - 1))] : paint.empty;
    pen.fillRect(x, y, size, size);
    if (!paint.ramp) {
      pen.fillStyle = paint.full;
      pen.fillRect(x, y + size - high, size, high);
    }
    if (size >= 70) {
      const pods = node.pods === undefined ? "" : `, ${node.pods === 1 ? "1 pod" : `${node.pods} pods`}`;
      // The bar may end within a line, so each side of its edge has a colour of its own.
      for (const [top, tall, first, second] of [
        [y, size - high, paint.text, paint.quiet],
        [y + size - high, high, paint.ground, paint.ground],
      ]) {
        pen.save();
        pen.beginPath();
        pen.rect(x, top, size, tall);
        pen.clip();
        pen.fillStyle = first;
        pen.fillText(name, x + 8, y + 18, size - 16);
        pen.fillStyle = second;
        pen.fillText(`${Math.round(100 * fill)} %${pods}`, x + 8, y + 34, size - 16);
        pen.restore();
      }
    }
    pen.lineWidth = size > 14 ? 2 : 1;
    if (this.selected === name) {
      pen.globalAlpha = 1;
      pen.setLineDash([]);
      pen.strokeStyle = paint.accent;
      const inset = size > 12 ? 3.5 : 0.5;
      pen.strokeRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
      pen.globalAlpha = found ? 1 : 0.25;
    }
    const frame = !node.ready ? paint.down : this.matched !== null && found ? paint.match : !node.open ? paint.quiet : "";
    if (frame) {
      pen.strokeStyle = frame;
      pen.setLineDash(node.ready && !node.open ? [3, 2] : []);
      pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    }
    return fill;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return this.order.find((name) => {
      const node = this.nodes.get(name);
      return x >= node.x && x < node.x + this.cell.size && y >= node.y && y < node.y + this.cell.size;
    });
  }

  /** The name that a key goes to from the selected one; nothing for other keys. */
  after(key) {
    const { order } = this, at = order.indexOf(this.selected), step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1, Home: 0, End: 0 }[key];
    if (step === undefined || !order.length) return undefined;
    if (key === "Home" || key === "End") return order.at(key === "Home" ? 0 : -1);
    if (key === "ArrowRight" || key === "ArrowLeft") return order[(at + step + order.length) % order.length];
    if (at < 0) return order[0];
    const { x } = this.nodes.get(order[at]);
    for (let other = at + step; other >= 0 && other < order.length; other += step) if (this.nodes.get(order[other]).x === x) return order[other];
    return order[at];
  }

  describe(name) {
    const node = this.nodes.get(name);
    const amounts = Object.entries(node.amounts).map(([resource, [used, all]]) => `${resource} ${amountText(resource, used)} of ${amountText(resource, all)}`);
    return `${name}${node.ready ? "" : ", not ready"}${node.open ? "" : ", cordoned"}: ${amounts.join(", ")}`;
  }
}
