"use strict";
// Films with a slider, in place of a figure: a rotated digit and the parts that the encoder finds in it, or iterations
// of routing. The mouse and the keyboard move the slider. A screen reader announces its value and what changed.
(() => {
  const SIZE = 336;  // pixels of the canvas that frames are drawn on
  const MAP = 192;  // pixels of a map of parts
  const ON = 0.5;
  const add = (parent, name, words) => {
    const element = parent.appendChild(document.createElement(name));
    Object.assign(element, words);
    return element;
  };
  const signed = value => (value < 0 ? "\u2212" : "") + Math.abs(value);
  const png = content => "data:image/png;base64," + content;

  const canvasIn = (views, name, size) => {
    const view = add(views, "div", { className: "view" });
    const drawn = add(view, "canvas", { width: size, height: size });
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", name);
    const context = drawn.getContext("2d");
    context.imageSmoothingEnabled = false;
    return { view, context };
  };

  // Builds a film's elements. Returns its images, and `show`, which draws a position of the slider and returns words.
  const turned = (film, data) => {
    const { side } = data;
    const picture = new Image();
    const views = add(film, "div", { className: "views" });
    const named = (name, size) => {
      const { view, context } = canvasIn(views, name, size);
      view.append(name);
      return context;
    };
    const strips = data.strips.map(name => named(name, side));
    const poses = named("frames of the parts", SIZE);

    add(film, "p", { className: "soft", textContent: "Presences of the parts" });
    const list = add(film, "ol", { className: "presences" });
    const bars = data.colours.map((colour, part) => {
      const item = add(list, "li", {});
      const bar = add(add(item, "span", {}), "i", {});
      bar.style.background = colour;
      item.append(part + 1);
      return bar;
    });

    const show = at => {
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
      const value = signed(data.values[at]) + data.unit;
      return { value, spoken: `${value}, ${on} parts on` };
    };
    return { show, images: [[picture, data.picture]] };
  };

  const routed = (film, data) => {
    const { side, classes } = data;
    const [dark, bright] = data.colours.map(hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16)));
    const shade = share => `rgb(${dark.map((low, at) => Math.round(low + (bright[at] - low) * share / data.most)).join()})`;

    const key = add(film, "p", { className: "soft shades" });
    key.append("A part gives the class 0 % ");
    add(key, "i", {}).style.background = `linear-gradient(to right, ${data.colours.join()})`;
    key.append(` ${data.most} % of itself`);

    const rows = data.images.map(image => {
      const views = add(film, "div", { className: "maps" });
      const picture = new Image();
      const seen = canvasIn(views, image.name, MAP);
      add(seen.view, "strong", { textContent: image.name });
      const cells = classes.map((name, place) => {
        const { view, context } = canvasIn(views, `parts given to ${name}`, MAP);
        view.classList.toggle("right", place === image.label);
        add(view, place === image.label ? "strong" : "span", { textContent: name });
        const level = add(add(view, "span", { className: "level" }), "i", {});
        const active = add(view, "span", {});
        const spread = add(view, "span", {});
        return { context, level, active, spread };
      });
      return { image, picture, seen, cells };
    });

    const map = (context, image, shares) => {
      const cell = MAP / side;
      context.fillStyle = "#000000";
      context.fillRect(0, 0, MAP, MAP);
      image.parts.forEach((activation, place) => {
        const size = 0.94 * cell * Math.sqrt(Math.min(Math.max(activation, 0), 1));
        const left = (place % side + 0.5) * cell - size / 2;
        const top = (Math.floor(place / side) + 0.5) * cell - size / 2;
        context.fillStyle = shade(shares[place]);
        context.fillRect(left, top, size, size);
      });
    };

    const show = at => {
      const taken = rows.map(({ image, picture, seen, cells }) => {
        seen.context.drawImage(picture, 0, 0, MAP, MAP);
        const activations = image.activations[at];
        cells.forEach(({ context, level, active, spread }, place) => {
          map(context, image, image.shares[at][place]);
          level.style.transform = `scaleX(${activations[place]})`;
          active.textContent = `activation ${activations[place].toFixed(2)}`;
          spread.textContent = `spread ${image.spreads[at][place].toFixed(2)}`;
        });
        return classes[activations.indexOf(Math.max(...activations))];
      });
      const value = `${data.values[at]} (${data.notes[at]})`;
      return { value, spoken: `${value}, most active: ${taken.join("; ")}` };
    };
    return { show, images: rows.map(({ image, picture }) => [picture, image.picture]) };
  };

  document.querySelectorAll(".film").forEach((film, number) => {
    const data = JSON.parse(film.querySelector("script").textContent);
    const { values } = data;
    const sheet = film.parentElement.querySelector(".sheet");

    const turn = add(film, "div", { className: "turn" });
    const words = data.quantity[0].toUpperCase() + data.quantity.slice(1);
    add(turn, "label", { htmlFor: `film-${number}`, textContent: words });
    const start = Math.max(values.indexOf(0), 0);
    const slider = add(turn, "input", { type: "range", id: `film-${number}`, min: 0, max: values.length - 1, step: 1 });
    slider.value = start;
    const shown = add(turn, "output", {});
    shown.htmlFor = slider.id;

    const { show, images } = (data.kind === "routing" ? routed : turned)(film, data);
    const update = () => {
      const at = Number(slider.value);
      const { value, spoken } = show(at);
      shown.textContent = value;
      slider.setAttribute("aria-valuetext", spoken);
      film.dataset.shown = values[at];
    };
    slider.addEventListener("input", update);
    Promise.all(images.map(([image, content]) => {
      image.src = png(content);
      return image.decode();
    })).then(() => {
      update();
      sheet.hidden = true;
      film.hidden = false;
    });
  });
})();
