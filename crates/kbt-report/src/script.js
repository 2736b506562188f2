// Nothing here is needed to read the report: a button beside each command, and all details open on paper.
for (const pre of document.querySelectorAll("pre.command")) {
  if (!navigator.clipboard) break;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(pre.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  pre.append(button);
}
const closed = () => document.querySelectorAll("details:not([open])");
let opened = [];
addEventListener("beforeprint", () => { opened = [...closed()]; for (const d of opened) d.open = true; });
addEventListener("afterprint", () => { for (const d of opened) d.open = false; });
// A badge leads into the folded list of sources.
const reveal = () => {
  const at = location.hash && document.getElementById(location.hash.slice(1));
  const fold = at && at.closest("details");
  if (fold && !fold.open) { fold.open = true; at.scrollIntoView(); }
};
addEventListener("hashchange", reveal);
reveal();
// A region is a tab stop only where it scrolls.
const stops = () => {
  for (const region of document.querySelectorAll("div.scroll, pre:not(.command)")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
    else region.removeAttribute("tabindex");
  }
};
addEventListener("resize", stops);
for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", stops);
stops();
