// Links to Airflow's own pages. Airflow shows this page in a frame whose sandbox forbids it to move the window around it;
// what it may do is tell Airflow's router, as the browser's own buttons do.
"use strict";
const openInAirflow = (address) => {
  if (window.parent === window) {
    window.location.assign(address);
    return;
  }
  window.parent.history.pushState({}, "", address);
  window.parent.dispatchEvent(new window.parent.PopStateEvent("popstate", { state: {} }));
};

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element && event.target.closest("a[data-airflow]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  openInAirflow(link.getAttribute("href"));
});
