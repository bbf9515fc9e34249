// Airflow keeps the choice of colours in localStorage under "theme": light, dark or system. Same origin, so it holds here.
"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return window.localStorage.getItem("theme");
    } catch {
      return null; // storage is closed to this page
    }
  };
  const apply = () => {
    const choice = chosen();
    const isDark = choice === "dark" || (choice !== "light" && dark.matches);
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    window.dispatchEvent(new Event("themechange"));
  };
  window.addEventListener("storage", (event) => event.key === "theme" && apply());
  dark.addEventListener("change", apply);
  apply();
})();
