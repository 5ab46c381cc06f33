"use strict";
// Tables sorted by a click on a heading: upwards, downwards, and as they were. What has no number comes last.
(() => {
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

  document.querySelectorAll("table.numbers").forEach(table => {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];

    const sort = (column, order) => {
      heads.forEach((head, place) => head.setAttribute("aria-sort", place === column ? order : "none"));
      const text = row => row.cells[column].textContent;
      const number = row => parseFloat(text(row).replaceAll(",", "").replace("\u2212", "-"));  // NaN without one
      const sign = order === "descending" ? -1 : 1;
      const compared = rows.every(row => isNaN(number(row)))
        ? (a, b) => sign * text(a).localeCompare(text(b), "en")
        : (a, b) => isNaN(number(a)) - isNaN(number(b)) || sign * (number(a) - number(b)) || 0;
      body.append(...(order === "none" ? rows : [...rows].sort(compared)));
    };

    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(column, NEXT[head.getAttribute("aria-sort")]));
    });
  });
})();
