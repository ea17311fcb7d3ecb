// An agent elsewhere, in JavaScript: it registers with `remit serve`, is given work over one stream, tells how far it is, and comes back
// when the server was restarted. Needs: npm install @grpc/grpc-js @grpc/proto-loader
//
//   node remote_agent.mjs unix:/path/of/the/project/.remit/run/grpc.sock
//   REMIT_TOKEN=rmt_… node remote_agent.mjs 127.0.0.1:50051          (a token made by: remit token new words --may serve)
//   REMIT_TOKEN=rmt_… REMIT_CA=ca.pem node remote_agent.mjs host:50051
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const address = process.argv[2] ?? "unix:.remit/run/grpc.sock";
const protoFile = process.env.REMIT_PROTO ?? "tasks.proto"; // comes with remit: remit/agents/proto/v1/tasks.proto

// google.protobuf.Value as plain values, there and back.
const toValue = (value) =>
  value === null || value === undefined ? { nullValue: 0 }
  : typeof value === "number" ? { numberValue: value }
  : typeof value === "string" ? { stringValue: value }
  : typeof value === "boolean" ? { boolValue: value }
  : Array.isArray(value) ? { listValue: { values: value.map(toValue) } }
  : { structValue: toStruct(value) };
const toStruct = (object) => ({ fields: Object.fromEntries(Object.entries(object).map(([name, value]) => [name, toValue(value)])) });
const fromValue = (value) =>
  value.kind === "structValue" ? fromStruct(value.structValue)
  : value.kind === "listValue" ? (value.listValue.values ?? []).map(fromValue)
  : value.kind === "nullValue" ? null
  : value[value.kind];
const fromStruct = (struct) => Object.fromEntries(Object.entries(struct?.fields ?? {}).map(([name, value]) => [name, fromValue(value)]));

// What this agent can do. `tell` says how far it is; `signal` is aborted when nobody waits for the result any more, and `handIn` answers
// whether it is time to hand in what there is.
const operations = {
  count: {
    description: "Counts the words of a text.",
    schema: {
      type: "object",
      properties: { text: { type: "string" }, delay_ms: { type: "number", description: "A pause before each word." } },
      required: ["text"],
    },
    async run({ text, delay_ms = 0 }, { tell, signal, handIn }) {
      const words = text.split(/\s+/).filter(Boolean);
      let counted = 0;
      for (const word of words) {
        if (handIn()) break;
        if (delay_ms) await pause(delay_ms, undefined, { signal });
        counted += 1;
        tell(`counted ${word}`, counted / words.length);
      }
      return { words: counted, by: process.pid };
    },
  },
};

const { remit } = grpc.loadPackageDefinition(loader.loadSync(protoFile, { oneofs: true }));
const credentials = process.env.REMIT_CA ? grpc.credentials.createSsl(readFileSync(process.env.REMIT_CA)) : grpc.credentials.createInsecure();
const client = new remit.v1.AgentService(address, credentials);
const metadata = new grpc.Metadata();
if (process.env.REMIT_TOKEN) metadata.set("authorization", `Bearer ${process.env.REMIT_TOKEN}`);
const call = (method, message) =>
  new Promise((resolve, reject) => client[method](message, metadata, (error, answer) => (error ? reject(error) : resolve(answer))));

// From registering until the connection is lost.
async function serve() {
  const { agentId, secret, heartbeatNs } = await call("Register", {
    name: "words",
    description: "Words, counted in JavaScript.",
    slots: 4,
    operations: Object.entries(operations).map(([name, { description, schema }]) => ({
      name, description, parametersSchema: toStruct(schema),
    })),
  });
  const stream = client.Work(metadata);
  const running = new Map();
  leave = async () => {
    await call("Unregister", { agentId, secret }); // it is given nothing more; what it has it may finish
    while (running.size) await pause(20);
    stream.end();
  };

  async function work({ workId, operation, parameters }) {
    const state = { stop: new AbortController(), handIn: false };
    running.set(workId, state);
    try {
      const tell = (message, fraction) => stream.write({ progress: { workId, message, fraction } });
      const context = { tell, signal: state.stop.signal, handIn: () => state.handIn };
      const result = await operations[operation].run(fromStruct(parameters), context);
      stream.write({ done: { workId, result: toValue(result) } });
    } catch (error) {
      stream.write({ failed: { workId, message: String(error), code: "WORDS_FAILED", recoverable: true } });
    } finally {
      running.delete(workId);
    }
  }

  stream.write({ hello: { agentId, secret } });
  const beating = setInterval(
    () => call("Heartbeat", { agentId, secret, workIds: [...running.keys()] }).catch(() => stream.cancel()),
    Number(heartbeatNs) / 2e6,
  );
  try {
    await new Promise((resolve, reject) => {
      stream.on("data", ({ welcome, order, stop, handIn }) => {
        if (welcome) console.log(`registered as ${agentId}`);
        if (order) void work(order);
        if (stop) running.get(stop.workId)?.stop.abort();
        if (handIn && running.has(handIn.workId)) running.get(handIn.workId).handIn = true;
      });
      stream.on("error", reject);
      stream.on("end", resolve);
    });
  } finally {
    clearInterval(beating);
    for (const { stop } of running.values()) stop.abort();
  }
}

let leave = async () => {};
let isLeaving = false;
for (const name of ["SIGINT", "SIGTERM"])
  process.on(name, () => {
    isLeaving = true;
    leave().catch(() => {}).finally(() => process.exit(0));
  });

for (let tries = 0; !isLeaving; tries += 1) {
  try {
    await serve();
    tries = 0;
  } catch (error) {
    const final = [grpc.status.UNAUTHENTICATED, grpc.status.PERMISSION_DENIED, grpc.status.INVALID_ARGUMENT, grpc.status.FAILED_PRECONDITION];
    console.error(`${error.details ?? error}`);
    if (final.includes(error.code)) process.exit(1); // trying again would change nothing
  }
  await pause(Math.min(2000, 100 * 2 ** Math.min(tries, 5)));
}
