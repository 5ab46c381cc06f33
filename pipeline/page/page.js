"use strict";
// Sorts, searches and filters the claims, and keeps this state in the address, so that a view can be linked and "back"
// returns to the view before. Filters also work without this script (page.css).
(() => {
  const FACETS = ["document", "verdict", "setting"];
  const $ = id => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const rows = all(".claim");
  const texts = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  const places = new Map(rows.map((row, place) => [row, place]));
  const find = $("find");

  // The state: {document, verdict, setting, q, sort}. Defaults are left out.
  const read = () => Object.fromEntries(new URLSearchParams(location.search));
  const shown = () => {
    const state = {};
    for (const name of FACETS) {
      const chosen = document.querySelector(`input[name=${name}]:checked`);
      if (chosen && chosen.value !== "all") state[name] = chosen.value;
    }
    if (find.value.trim()) state.q = find.value.trim();
    if (sorted) state.sort = sorted;
    return state;
  };
  let sorted = "";
  let typing = false;

  const write = replace => {
    const query = new URLSearchParams(shown()).toString();
    const address = location.pathname + (query && "?" + query);
    history[replace ? "replaceState" : "pushState"](null, "", address);
  };

  const sort = () => {
    const [key, order] = sorted.split(".");
    const sign = order === "descending" ? -1 : 1;
    for (const table of all(".scorecard")) {
      const heads = all("th", table);
      const column = heads.findIndex(head => head.dataset.key === key);
      heads.forEach((head, place) => head.setAttribute("aria-sort", place === column ? order : "none"));
      const value = row => {
        const text = row.cells[column].dataset.sort;
        return text === "" ? NaN : Number(text);
      };
      const body = table.tBodies[0];
      const order_of = (a, b) => {
        if (column >= 0) {
          const [x, y] = [value(a), value(b)];
          if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;  // empty cells come last in either order
          if (x !== y && !isNaN(x)) return sign * (x - y);
        }
        return places.get(a) - places.get(b);
      };
      body.append(...[...body.rows].sort(order_of));
    }
  };

  const filter = () => {
    const state = shown();
    const words = (state.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    document.body.classList.toggle("searching", words.length > 0);
    let count = 0;
    for (const section of all(".document")) {
      let here = 0;
      const chosen = !state.document || section.id === "of-" + state.document;
      for (const row of all(".claim", section)) {
        const fits = (!state.verdict || row.classList.contains("is-" + state.verdict)) &&
          (!state.setting || row.classList.contains("at-" + state.setting)) &&
          words.every(word => texts.get(row).includes(word));
        row.classList.toggle("empty", !fits);
        if (fits) here++;
      }
      const narrowed = Boolean(words.length || state.verdict || state.setting);
      section.classList.toggle("empty", !chosen || (narrowed && here === 0));
      if (chosen) count += here;
    }
    const narrowed = Object.keys(state).some(name => name !== "sort");
    $("found").textContent = `${count} of ${rows.length} claims` +
      (words.length || state.verdict || state.setting ? "; figures and tables are hidden" : "");
    $("reset").hidden = !narrowed && !sorted;
  };

  const show = state => {
    for (const name of FACETS) {
      const wanted = all(`input[name=${name}]`).find(each => each.value === state[name]) || $(`show-${name}-all`);
      wanted.checked = true;
    }
    find.value = state.q || "";
    const [key, order] = (state.sort || "").split(".");
    const known = all("th[data-key]").some(head => head.dataset.key === key);
    sorted = known && ["ascending", "descending"].includes(order) ? state.sort : "";
    sort();
    filter();
  };

  // If a link leads to a claim, a figure or a table that filters hide, all filters are reset.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.checkVisibility && !target.checkVisibility()) {
      show({});
      history.replaceState(null, "", location.pathname + location.hash);
    }
    const details = target.querySelector(".behind");
    if (details) details.open = true;
    target.scrollIntoView();
  };

  for (const head of all(".scorecard th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const ascending = `${head.dataset.key}.ascending`;
      sorted = sorted === ascending ? `${head.dataset.key}.descending` : sorted.startsWith(head.dataset.key + ".") ? "" : ascending;
      sort();
      filter();
      write(false);
    });
  }
  for (const input of all(".filter input[type=radio]"))
    input.addEventListener("change", () => { filter(); write(false); });
  find.addEventListener("input", () => {
    filter();
    write(typing);  // one entry in the history for one search, not one for each letter
    typing = true;
  });
  find.addEventListener("change", () => { typing = false; });
  $("reset").addEventListener("click", () => { show({}); write(false); find.focus(); });
  document.querySelector(".filter").addEventListener("submit", event => event.preventDefault());
  addEventListener("popstate", () => { typing = false; show(read()); });
  addEventListener("hashchange", reveal);
  document.querySelector(".find").hidden = false;
  show(read());
  reveal();
})();
