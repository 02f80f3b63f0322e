// The button "Copy" of a console block copies the commands, without prompts and output.
const PROMPT = "$ ";

function continues(command) {
  let quote = "";
  for (const each of command.replace(/\\./gs, "")) {
    if (quote) quote = each === quote ? "" : quote;
    else if (each === "'" || each === '"') quote = each;
  }
  return quote !== "" || command.endsWith("\\");
}

function commandsOf(text) {
  const lines = text.split("\n");
  const commands = [];
  while (lines.length) {
    let command = lines.shift();
    if (!command.startsWith(PROMPT)) continue;
    command = command.slice(PROMPT.length);
    while (lines.length && continues(command)) command += `\n${lines.shift()}`;
    commands.push(command);
  }
  return commands.join("\n");
}

document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest("[data-clipboard-target]");
    const code = button?.closest(".language-console")?.querySelector("code");
    if (code) button.dataset.clipboardText = commandsOf(code.textContent);
  },
  { capture: true },
);
