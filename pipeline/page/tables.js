"use strict";
// Tables sorted by a click on a heading: upwards, downwards, and as they were. What has no number comes last.
(() => {
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

  document.querySelectorAll("table.sortable").forEach(table => {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];

    const sort = (column, order) => {
      heads.forEach((head, place) => head.setAttribute("aria-sort", place === column ? order : "none"));
      const keys = new Map(rows.map(row => [row, row.cells[column].dataset.sort]));
      const numeric = [...keys.values()].every(key => key === "" || !isNaN(Number(key)));
      const compared = (a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const sign = order === "descending" ? -1 : 1;
        return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y, "en"));
      };
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
