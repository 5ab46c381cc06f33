"use strict";
// Pictures by a slider, in place of the picture: a digit turned, and what the encoder finds in it. The mouse and the
// keyboard move the slider; a screen reader hears its value and how many parts are on.
(() => {
  const SIZE = 336;  // pixels of the canvas that frames are drawn on
  const ON = 0.5;
  const add = (parent, name, words) => {
    const element = parent.appendChild(document.createElement(name));
    Object.assign(element, words);
    return element;
  };
  const signed = value => (value < 0 ? "\u2212" : "") + Math.abs(value);

  document.querySelectorAll(".film").forEach((film, number) => {
    const data = JSON.parse(film.querySelector("script").textContent);
    const { side, values } = data;
    const sheet = film.parentElement.querySelector(".sheet");
    const picture = new Image();

    const turn = add(film, "div", { className: "turn" });
    const words = data.quantity[0].toUpperCase() + data.quantity.slice(1);
    add(turn, "label", { htmlFor: `film-${number}`, textContent: words });
    const start = Math.max(values.indexOf(0), 0);
    const slider = add(turn, "input", { type: "range", id: `film-${number}`, min: 0, max: values.length - 1, step: 1 });
    slider.value = start;
    const shown = add(turn, "output", {});
    shown.htmlFor = slider.id;

    const views = add(film, "div", { className: "views" });
    const canvas = (name, size) => {
      const view = add(views, "div", { className: "view" });
      const drawn = add(view, "canvas", { width: size, height: size });
      drawn.setAttribute("role", "img");
      drawn.setAttribute("aria-label", name);
      view.append(name);
      const context = drawn.getContext("2d");
      context.imageSmoothingEnabled = false;
      return context;
    };
    const strips = data.strips.map(name => canvas(name, side));
    const poses = canvas("frames of the parts", SIZE);

    add(film, "p", { className: "soft", textContent: "Presences of the parts" });
    const list = add(film, "ol", { className: "presences" });
    const bars = data.colours.map((colour, part) => {
      const item = add(list, "li", {});
      const bar = add(add(item, "span", {}), "i", {});
      bar.style.background = colour;
      item.append(part + 1);
      return bar;
    });

    const show = () => {
      const at = Number(slider.value);
      strips.forEach((context, row) => context.drawImage(picture, at * side, row * side, side, side, 0, 0, side, side));
      poses.globalAlpha = 1;
      poses.fillRect(0, 0, SIZE, SIZE);
      poses.globalAlpha = 0.45;
      poses.drawImage(picture, at * side, 0, side, side, 0, 0, SIZE, SIZE);
      data.frames[at].forEach((corners, part) => {
        const presence = data.presences[at][part];
        poses.globalAlpha = presence;
        poses.strokeStyle = data.colours[part];
        poses.lineWidth = 2.5;
        poses.beginPath();
        for (let corner = 0; corner < 8; corner += 2)
          poses.lineTo((corners[corner] + 1) / 2 * SIZE, (corners[corner + 1] + 1) / 2 * SIZE);
        poses.closePath();
        poses.stroke();
        poses.beginPath();  // the upper edge, thicker: which way is up
        poses.lineWidth = 5;
        poses.moveTo((corners[0] + 1) / 2 * SIZE, (corners[1] + 1) / 2 * SIZE);
        poses.lineTo((corners[2] + 1) / 2 * SIZE, (corners[3] + 1) / 2 * SIZE);
        poses.stroke();
      });
      data.presences[at].forEach((presence, part) => { bars[part].style.transform = `scaleY(${presence})`; });
      const on = data.presences[at].filter(presence => presence > ON).length;
      const value = signed(values[at]) + data.unit;
      shown.textContent = value;
      slider.setAttribute("aria-valuetext", `${value}, ${on} parts on`);
      film.dataset.shown = values[at];
    };
    slider.addEventListener("input", show);
    picture.addEventListener("load", () => {
      show();
      sheet.hidden = true;
      film.hidden = false;
    });
    picture.src = "data:image/png;base64," + data.picture;
  });
})();
