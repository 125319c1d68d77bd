/* Search for the stems of the words of a query: `resume training` also finds "resumes" and "trained".
   docs/site_hooks.py puts this before the theme's worker, which adds a wildcard to each word. */
{
  const QUERY = 2;
  const OPERATORS = /["*+:^~]|(?:^|\s)-/;
  const stem = (word) => lunr.stemmer(new lunr.Token(word)).toString();
  const split = (text) => text.split(lunr.tokenizer.separator).filter(Boolean);
  const isName = (word) => /\w_\w/.test(word);
  const all = (name) => split(name).map((part) => `+${stem(part)}*`).join(" ");
  addEventListener("message", ({ data: message }) => {
    if (message.type !== QUERY || OPERATORS.test(message.data)) return;
    const words = message.data.toLowerCase().split(/\s+/).flatMap((word) => (isName(word) ? word : split(word)));
    const telling = words.filter((word) => lunr.stopWordFilter(word));
    message.data = (telling.length ? telling : words).map((word) => (isName(word) ? all(word) : stem(word))).join(" ");
  });
}
