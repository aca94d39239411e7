for (const box of document.querySelectorAll("[data-choose]")) {
  const trees = [...box.querySelectorAll(":scope > details")];
  if (trees.length < 2) continue;
  const label = document.createElement("label");
  const select = document.createElement("select");
  label.append(box.dataset.choose + " ", select);
  for (const tree of trees) select.add(new Option(tree.dataset.name));
  const show = () => trees.forEach((tree, k) => {
    tree.hidden = k !== select.selectedIndex;
    tree.open = !tree.hidden;
  });
  select.addEventListener("change", show);
  box.prepend(label);
  box.classList.add("chosen");
  show();
}
