/* Marks what is wider than its place, so that a reader sees that it can be scrolled sideways. */
const places = new ResizeObserver((found) => {
  for (const { target } of found) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1);
});
for (const region of document.querySelectorAll(".scroll")) places.observe(region);
