"use strict";
// Draws the pieces of a report: only those that are looked at, and every text as text, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const strings = data.strings;
  const find = (id) => document.getElementById(id);
  const figure = (n) => n.toLocaleString("en-US");
  const counted = (n, what) => `${figure(n)} ${what}${n === 1 ? "" : "s"}`;
  const CHUNK = 60; // pieces drawn at a time
  const SHOWN = 420; // characters of a text in the list; the panel has all of it
  const EDGE = 120; // characters of an unchanged stretch that are shown at both ends
  const own = (held, name) => (Object.hasOwn(held, name) ? held[name] : null); // a name may be "constructor"
  const outcome = (action) => own({ kept: "kept", trimmed: "dropped" }, action) || "shortened";

  let turn = data.turns.length - 1;
  let chosen = null;
  let query = "";
  const actions = new Set();
  const blocks = new Set();
  const drawn = data.turns.map(() => null);

  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === false) continue;
      if (name === "hue") made.style.setProperty("--hue", value);
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  // ---- the data -----------------------------------------------------------------------------------
  function pieces() {
    if (drawn[turn]) return drawn[turn];
    const text = (number) => (number === null ? null : strings[number]);
    return (drawn[turn] = data.turns[turn].pieces.map(
      ([id, block, action, reason, detail, before, after, whole, reads, role, score, more], i) => ({
        place: i, id: strings[id], block: strings[block], action: strings[action], reason: strings[reason],
        detail: strings[detail], before, after, whole: text(whole), reads: text(reads), role: strings[role],
        score, more, end: outcome(strings[action]),
      })));
  }

  const rowOf = (block) => data.turns[turn].rows.find((one) => strings[one[0]] === block);
  const hueOf = (block) => rowOf(block)?.[2] ?? "#7b8798";
  const titleOf = (block) => rowOf(block)?.[1] ?? block;

  function matches(piece) {
    if (actions.size && !actions.has(piece.end)) return false;
    if (blocks.size && !blocks.has(piece.block)) return false;
    if (!query) return true;
    if (piece.searched === undefined) {
      const texts = [piece.id, piece.role, piece.reason, piece.detail, piece.whole, piece.reads];
      piece.searched = texts.filter(Boolean).join("\n").toLowerCase();
    }
    return piece.searched.includes(query);
  }

  // ---- the list -----------------------------------------------------------------------------------
  // An entry is one line of the list: the head of a block, a piece, a run of dropped ones, or the boundary.
  function entries() {
    const found = [];
    const runs = !query && !(actions.size === 1 && actions.has("dropped"));
    const same = data.turns[turn].same;
    let block = null, kept = 0, tokens = 0, run = null, marked = same === null || same === 0;
    for (const piece of pieces()) {
      if (!marked && piece.end !== "dropped" && kept === same) {
        found.push({ kind: "cache", same, tokens });
        marked = true;
        run = null;
      }
      if (piece.end !== "dropped") { kept += 1; tokens += piece.after; }
      if (!matches(piece)) continue;
      if (piece.block !== block) {
        block = piece.block;
        run = null;
        found.push({ kind: "block", block });
      }
      if (!runs || piece.end !== "dropped") {
        run = null;
        found.push({ kind: "piece", piece });
      } else if (run) {
        run.pieces.push(piece);
      } else {
        run = { kind: "run", pieces: [piece] };
        found.push(run);
      }
    }
    if (!marked) found.push({ kind: "cache", same, tokens });
    return found;
  }

  const items = find("items"), next = find("next");
  let waiting = [], position = 0;

  function draw() {
    waiting = entries();
    position = 0;
    items.replaceChildren();
    const all = pieces().length, shown = pieces().filter(matches).length;
    find("count").textContent =
      shown === all ? counted(all, "piece") : `${figure(shown)} of ${counted(all, "piece")}`;
    if (!shown) items.append(el("li", { class: "empty" }, "No piece matches. Clear the search or a filter."));
    more();
  }

  function more() {
    const made = waiting.slice(position, position + CHUNK).map(line);
    position += made.length;
    items.append(...made);
    const left = waiting.length - position;
    next.hidden = left <= 0;
    next.textContent = `Show more (${figure(left)} left)`;
  }

  function line(entry) {
    if (entry.kind === "piece") return card(entry.piece);
    if (entry.kind === "block") return blockHead(entry.block);
    if (entry.kind === "run" && entry.pieces.length === 1) return card(entry.pieces[0]);
    if (entry.kind === "run") return runOf(entry.pieces);
    const said = `Same start as turn ${turn}: ${counted(entry.same, "piece")}, ${counted(entry.tokens, "token")}. ` +
      "A prompt cache may hold it.";
    return el("li", { class: "cache" }, el("span", {}, said));
  }

  function blockHead(block) {
    const [granted, used, rank] = own(data.turns[turn].blocks, block) || [null, null, null];
    const figures = used === null ? "" :
      `${granted === null ? counted(used, "token") : `${figure(used)} of ${counted(granted, "token")}`}, rank ${rank}`;
    return el("li", { class: "block", hue: hueOf(block) },
      el("i", { "aria-hidden": "true" }), el("b", {}, titleOf(block)), el("span", {}, figures));
  }

  function card(piece) {
    const said = piece.end === "dropped" ? piece.whole : piece.reads;
    const tokens = piece.end === "shortened" && piece.before
      ? `${figure(piece.before)} → ${figure(piece.after)}`
      : figure(piece.end === "dropped" ? piece.before : piece.after);
    const badge = piece.action === "summarized" ? "summary" : piece.end;
    const open = () => choose(piece, made);
    const made = el("li", { class: `piece ${piece.end}`, hue: hueOf(piece.block) },
      el("button", { type: "button", "aria-pressed": "false", "aria-controls": "panel", onclick: open },
        el("span", { class: "id" }, marked(piece.id || "(no id)")),
        piece.role ? el("span", { class: "role" }, piece.role) : null,
        piece.end === "kept" ? null : el("span", { class: "badge" }, badge),
        piece.end === "dropped" ? el("span", { class: "role" }, piece.reason) : null,
        el("span", { class: "tokens" }, `${tokens} tokens`)),
      said ? el("p", { class: "says", onclick: open }, marked(clipped(said))) : null);
    made.piece = piece;
    if (chosen && chosen === piece) press(made);
    return made;
  }

  function runOf(list) {
    const tokens = list.reduce((sum, piece) => sum + piece.before, 0);
    const reasons = [...new Set(list.map((piece) => piece.reason))].slice(0, 3).join(", ");
    const inner = el("ol", { hidden: true });
    let at = 0;
    const grow = () => {
      const made = list.slice(at, (at += CHUNK)).map(card);
      inner.append(...made);
      if (at >= list.length) return made;
      const left = `Show more (${figure(list.length - at)} left)`;
      const rest = el("li", {}, el("button", { type: "button", class: "next", onclick: () => {
        rest.remove();
        grow()[0].firstChild.focus();
      } }, left));
      inner.append(rest);
      return made;
    };
    const toggle = el("button", { type: "button", "aria-expanded": "false", onclick: () => {
      const open = inner.hidden;
      if (open && !at) grow();
      inner.hidden = !open;
      toggle.setAttribute("aria-expanded", String(open));
    } }, el("span", {}, `${figure(list.length)} dropped`), el("span", { class: "role" }, reasons),
      el("span", { class: "tokens" }, counted(tokens, "token")));
    return el("li", { class: "piece dropped run", hue: hueOf(list[0].block) }, toggle, inner);
  }

  function clipped(text) {
    if (!query) return text.length > SHOWN ? `${text.slice(0, SHOWN)} …` : text;
    const at = Math.max(0, text.toLowerCase().indexOf(query) - 80);
    return `${at ? "… " : ""}${text.slice(at, at + SHOWN)}${text.length > at + SHOWN ? " …" : ""}`;
  }

  function marked(text) {
    const made = document.createDocumentFragment();
    if (!query) { made.append(text); return made; }
    const low = text.toLowerCase();
    let at = 0;
    for (let hit = low.indexOf(query); hit >= 0; hit = low.indexOf(query, at)) {
      made.append(text.slice(at, hit), el("mark", {}, text.slice(hit, hit + query.length)));
      at = hit + query.length;
    }
    made.append(text.slice(at));
    return made;
  }

  // ---- the chosen piece ---------------------------------------------------------------------------
  const panel = find("panel"), about = find("about");

  function press(card) {
    for (const other of items.querySelectorAll(".piece.on")) {
      other.classList.remove("on");
      other.firstChild.setAttribute("aria-pressed", "false");
    }
    if (card) {
      card.classList.add("on");
      card.firstChild.setAttribute("aria-pressed", "true");
    }
  }

  function choose(piece, card) {
    chosen = piece;
    press(card);
    panel.classList.remove("idle");
    const meaning = own(data.meanings, piece.reason);
    const [granted, used] = own(data.turns[turn].blocks, piece.block) || [null, null];
    const rows = [
      ["Block", titleOf(piece.block)], ["Role", piece.role], ["Score", String(piece.score ?? "")],
      ["Tokens, whole", figure(piece.before)], ["Tokens, in the prompt", figure(piece.after)],
      ["Granted to the block", granted === null || granted === undefined ? "" : figure(granted)],
      ["Used by the block", used === null || used === undefined ? "" : figure(used)],
    ].filter(([, value]) => value !== "");
    about.replaceChildren(
      el("button", { type: "button", class: "close", "aria-label": "Close", onclick: close }, "×"),
      el("h3", {}, piece.id || "(no id)"),
      el("p", {}, el("b", {}, { kept: "Kept whole", dropped: "Dropped", shortened: "Shortened" }[piece.end]),
        `: ${meaning || piece.reason} `, el("span", { class: "role" }, `(${piece.action}, ${piece.reason})`)),
      piece.detail ? el("p", {}, piece.detail) : "",
      piece.end === "dropped" ? el("p", { class: "back" }, comesBack(piece)) : "",
      el("dl", {}, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      ...textOf(piece));
    panel.scrollTop = 0;
    find("told").textContent = `${piece.id}: ${piece.end}, ${meaning || piece.reason}`;
  }

  function comesBack(piece) {
    if (piece.more > 0) return `${counted(piece.more, "more token")} for the prompt ${piece.more === 1 ? "brings" : "bring"} it back.`;
    if (piece.more === 0) return "No budget brings it back.";
    return "How many more tokens bring it back is not known here; report.explain() may say it.";
  }

  function textOf(piece) {
    if (piece.end === "shortened" && piece.whole !== null && piece.reads !== null) {
      return [el("h4", {}, "The text, with what was left out"),
        el("p", { class: "text" }, ...shownDifference(piece.whole, piece.reads))];
    }
    const said = piece.end === "dropped" ? piece.whole : piece.reads;
    const heads = { kept: "In the prompt", shortened: "In the prompt", dropped: "Not in the prompt" };
    if (said === null) {
      return [el("p", { class: "hint" }, "This page was written without the text of this piece.")];
    }
    return [el("h4", {}, heads[piece.end]), el("p", { class: "text" }, said || "(empty)")];
  }

  function close() {
    const card = items.querySelector(".piece.on");
    chosen = null;
    press(null);
    idle();
    if (card) card.firstChild.focus();
  }

  function idle() {
    panel.classList.add("idle");
    const hint = "Choose a piece to see why it is in the prompt, or why it is not.";
    about.replaceChildren(el("p", { class: "hint" }, hint));
  }

  // ---- what a shortened text has lost --------------------------------------------------------------
  function shownDifference(before, after) {
    return difference(before, after).flatMap(([kind, text]) => (kind ? [el(kind, {}, text)] : folded(text)));
  }

  function folded(text) { // what is the same hides what is not where it is long
    if (text.length < 4 * EDGE) return [text];
    const rest = text.slice(EDGE, -EDGE);
    const open = el("button", { type: "button", class: "fold", onclick: () => open.replaceWith(rest) },
      `${counted(rest.length, "character")} the same`);
    return [text.slice(0, EDGE), open, text.slice(-EDGE)];
  }

  // ---- filters ------------------------------------------------------------------------------------
  function chips(place, names, chosenNames, label, hue) {
    place.replaceChildren(...names.map(([name, count]) =>
      el("button", { type: "button", "aria-pressed": String(chosenNames.has(name)), hue: hue ? hue(name) : null,
        onclick: (event) => {
          if (!chosenNames.delete(name)) chosenNames.add(name);
          event.currentTarget.setAttribute("aria-pressed", String(chosenNames.has(name)));
          draw();
        } }, hue ? el("i", { "aria-hidden": "true" }) : null, label(name), el("em", {}, figure(count)))));
  }

  function filters() {
    const ends = new Map([["kept", 0], ["shortened", 0], ["dropped", 0]]), names = new Map();
    for (const piece of pieces()) {
      ends.set(piece.end, ends.get(piece.end) + 1);
      names.set(piece.block, (names.get(piece.block) || 0) + 1);
    }
    for (const name of [...blocks]) if (!names.has(name)) blocks.delete(name);
    chips(find("actions"), [...ends].filter(([, count]) => count), actions, (name) => name, null);
    chips(find("blocks"), [...names], blocks, titleOf, hueOf);
  }

  // ---- turns --------------------------------------------------------------------------------------
  function timeline() {
    if (data.turns.length < 2) return;
    const place = find("timeline");
    place.hidden = false;
    place.append(...data.turns.map((one, i) => {
      const whole = one.rows.reduce((sum, row) => sum + Math.max(0, row[3]), 0) || 1;
      const free = ["free", "limit", "safety", "reserve"];
      const stack = el("span", { class: "stack", "aria-hidden": "true" });
      for (const [name, , hue, used] of one.rows) {
        if (used <= 0 || free.includes(strings[name])) continue;
        const part = el("span", {});
        part.style.height = `${(100 * used) / whole}%`;
        part.style.background = hue;
        stack.append(part);
      }
      const said = `Turn ${i + 1}: ${figure(one.total)} of ${counted(one.limit, "token")}`;
      const pick = { type: "button", "aria-label": said, title: said, onclick: () => show(i) };
      return el("button", pick, stack, String(i + 1));
    }));
    place.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      show(Math.min(data.turns.length - 1, Math.max(0, turn + step)));
      place.children[turn].focus();
      event.preventDefault();
    });
  }

  function show(number) {
    turn = number;
    chosen = null;
    for (const head of document.querySelectorAll(".turn")) head.hidden = Number(head.dataset.turn) !== turn;
    [...find("timeline").children].forEach((button, i) => {
      if (i === turn) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    });
    idle();
    filters();
    draw();
  }

  // ---- what people do ------------------------------------------------------------------------------
  next.addEventListener("click", () => {
    const last = items.lastElementChild;
    more();
    last?.nextElementSibling?.querySelector("button")?.focus({ preventScroll: true });
  });
  const near = new IntersectionObserver((seen) => {
    if (!seen.some((one) => one.isIntersecting) || next.hidden) return;
    more();
    near.unobserve(next); // it may still be near: observing it anew says so
    near.observe(next);
  }, { rootMargin: "900px" });
  near.observe(next);

  let timer = 0;
  find("query").addEventListener("input", (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => { query = event.target.value.trim().toLowerCase(); draw(); }, 120);
  });

  for (const button of document.querySelectorAll(".only")) {
    button.addEventListener("click", () => {
      blocks.clear();
      blocks.add(button.dataset.block);
      filters();
      draw();
      find("pieces").focus();
      find("list").scrollIntoView({ block: "start" });
    });
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && chosen) { close(); return; }
    const typing = event.target.matches("input");
    if (event.key === "/" && !typing) { find("query").focus(); event.preventDefault(); return; }
    if (typing || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    const buttons = [...items.querySelectorAll(".piece > button")].filter((one) => one.offsetParent);
    const at = buttons.indexOf(document.activeElement), down = event.key === "ArrowDown";
    if (at < 0 && !(down && document.activeElement === document.body)) return;
    // Where none has the focus, the first one in sight gets it.
    const target = at < 0 ? buttons.find((one) => one.getBoundingClientRect().top >= 0) : buttons[at + (down ? 1 : -1)];
    if (at < 0 && !target) return;
    if (target) { target.focus(); if (target.parentNode.piece) target.click(); }
    event.preventDefault();
  });

  find("main").hidden = false;
  timeline();
  show(turn);
})();
