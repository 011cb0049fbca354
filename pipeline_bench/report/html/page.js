// Draws the plots. What is in them is also in the tables, which stay open where this cannot run.
"use strict";
(async () => {
  const root = document.documentElement;
  const tables = [...document.querySelectorAll("details.figures")];
  const opened = (open) => tables.forEach((details) => { details.open = open; });
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      details.dataset.print = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const details of document.querySelectorAll("details[data-print]")) {
      details.open = false;
      delete details.dataset.print;
    }
  });
  const plots = JSON.parse(document.getElementById("plots").textContent);
  if (!plots.length || typeof DecompressionStream !== "function") return;
  root.classList.add("plots");
  opened(false);
  try {
    const packed = atob(document.getElementById("plotly").textContent);
    const bytes = Uint8Array.from(packed, (char) => char.charCodeAt(0));
    const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const library = document.createElement("script");
    library.textContent = await new Response(inflated).text();
    document.head.append(library);
    const touch = matchMedia("(pointer: coarse)").matches;
    for (const plot of plots) {
      const place = document.getElementById(plot.id);
      // On a touch screen a drag scrolls the page; the buttons zoom.
      if (touch) plot.layout.dragmode = false;
      await Plotly.newPlot(place, plot.data, plot.layout, { ...plot.config, responsive: true });
      // A view box lets the drawing shrink to a narrower sheet of paper; on the screen it changes nothing.
      const fit = () => place.querySelectorAll(".main-svg").forEach((svg) => {
        const [width, height] = [svg.getAttribute("width"), svg.getAttribute("height")];
        svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
        svg.setAttribute("preserveAspectRatio", "xMinYMin meet");
        place.style.setProperty("--ratio", width / height);
        place.style.setProperty("--width", `${width}px`);
      });
      fit();
      place.on("plotly_afterplot", fit);
    }
    root.classList.add("drawn");
  } catch (error) {
    root.classList.remove("plots");
    opened(true);
    document.querySelector(".unplotted").textContent += ` (${error})`;
  }
})();
