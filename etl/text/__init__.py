"""Work on one text or URL through a library: HTML, language, tokenizer, patterns."""
