"use strict";
// Figures drawn from their numbers, in place of the pictures, when they come near the window. Vega's expressions are
// interpreted (ast: true), so that the page's policy needs no "unsafe-eval".
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const INKS = ["#1a1a1a", "#000000"];
  // On a dark ground: dark colours of the palette, lighter.
  const LIGHTER = { "#0072B2": "#2f8be0", "#56B4E9": "#9bd6fb", "#D55E00": "#f58742", "#009E73": "#2cc499", "#8a8a8a": "#a5abb0" };
  const charts = [...document.querySelectorAll(".chart")];
  const views = new Map();

  const theme = () => {
    const style = getComputedStyle(document.body);
    const of = name => style.getPropertyValue(name).trim();
    const axis = {
      labelColor: of("--soft"), titleColor: of("--ink"), gridColor: of("--line"), domainColor: of("--soft"),
      tickColor: of("--soft"), labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", gridOpacity: 0.7,
    };
    return {
      aria: false, background: "transparent", font: style.fontFamily, axis, axisX: { grid: false, tickCount: 6 }, view: { stroke: null },
      axisY: { tickCount: 6 }, title: { color: of("--ink"), fontSize: 13, anchor: "start", offset: 8 },
    };
  };

  const coloured = text => {
    if (!dark.matches) return text;
    for (const ink of INKS) text = text.replaceAll(`"${ink}"`, '"#e9e9e9"');
    for (const [from, to] of Object.entries(LIGHTER)) text = text.replaceAll(`"${from}"`, `"${to}"`);
    return text;
  };

  const recolour = chart => {
    for (const svg of chart.querySelectorAll(".key svg"))
      for (const name of ["stroke", "fill"]) {
        const own = svg.dataset[name] ??= svg.getAttribute(name);
        svg.setAttribute(name, dark.matches && LIGHTER[own] || own);
      }
  };

  const draw = async chart => {
    const specifications = JSON.parse(coloured(chart.querySelector("script").textContent));
    const panels = chart.querySelector(".panels");
    for (const view of views.get(chart) || []) view.finalize();
    chart.hidden = false;
    chart.parentElement.querySelector(".sheet").hidden = true;
    panels.replaceChildren();
    recolour(chart);
    const drawn = await Promise.all(specifications.map(specification => {
      const panel = panels.appendChild(document.createElement("div"));
      panel.className = "panel";
      return vegaEmbed(panel, specification, {
        ast: true, actions: false, defaultStyle: false, renderer: "svg", config: theme(), mode: "vega-lite",
        tooltip: { disableDefaultStyle: true },
      });
    }));
    for (const form of panels.querySelectorAll(".vega-bindings")) form.remove();  // empty, but announced
    views.set(chart, drawn);
    chart.dataset.drawn = dark.matches ? "dark" : "light";
    choose(chart);
  };

  const choose = chart => {
    const pressed = chart.querySelector("[aria-pressed=true]");
    for (const { view } of views.get(chart) || []) view.signal("chosen", pressed && pressed.dataset.series).runAsync();
  };

  for (const chart of charts)
    chart.querySelector(".key").addEventListener("click", event => {
      const button = event.target.closest("button");
      if (!button) return;
      const on = button.getAttribute("aria-pressed") !== "true";
      for (const each of chart.querySelectorAll(".key button"))
        each.setAttribute("aria-pressed", String(on && each === button));
      choose(chart);
    });

  const near = new IntersectionObserver(entries => {
    for (const entry of entries)
      if (entry.isIntersecting) {
        near.unobserve(entry.target);
        draw(entry.target.querySelector(".chart"));
      }
  }, { rootMargin: "600px" });
  for (const chart of charts) near.observe(chart.closest("figure"));
  dark.addEventListener("change", () => { for (const chart of views.keys()) draw(chart); });
})();
