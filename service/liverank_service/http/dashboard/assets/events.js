// Server-sent events over fetch: EventSource can send no Authorization header.

/** Reads the events of a response: {name, id, data}, and null for a comment. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      // a line ends with \n, \r\n or \r; a \r at the end may be the first half of \r\n
      const text = (rest + value).replace(/\r\n|\r(?!$)/g, "\n");
      const blocks = text.split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) yield eventOf(block);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function eventOf(block) {
  const event = { name: "message", id: null, data: null };
  const data = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*)(?::\s?)?([\s\S]*)$/.exec(line);
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") data.push(value);
  }
  if (data.length === 0) return null;
  event.data = data.join("\n");
  return event;
}
