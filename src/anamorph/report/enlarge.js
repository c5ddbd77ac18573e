const dialog = document.querySelector("dialog");
const large = dialog.querySelector("img");
for (const button of document.querySelectorAll("figure button")) {
  button.addEventListener("click", () => {
    const small = button.querySelector("img");
    large.src = small.src;
    large.alt = small.alt;
    dialog.showModal();
  });
}
dialog.addEventListener("click", () => dialog.close());
