"""The command line: `bin/lakemirror`, with text for people and JSON for scripts."""
