// What the pages show of a model's prices: every kind, also in rows for long prompts and for tiers. It needs no browser.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const source = readFileSync(new URL("../../src/gateway/api/pages/dom.js", import.meta.url), "utf8");
const { morePrices } = await import(`data:text/javascript,${encodeURIComponent(source)}`);

test("a price for a call is shown wherever it stands", () => {
  const pricing = {
    prompt: "0.000001", completion: "0.000002", request: "0.01", input_cache_read: "0.0000001",
    overrides: [{ min_prompt_tokens: 1000, prompt: "0.000003", completion: "0.000004", request: "0.02" }],
    tiers: {
      flex: { prompt: "0.0000005", completion: "0.000001" },
      priority: {
        prompt: "0.000002", completion: "0.000004", image: "0.00001", request: "0.05",
        overrides: [{ min_prompt_tokens: 2000, prompt: "0.000006", completion: "0.000008", image: "0.00002", request: "0.05" }],
      },
    },
  };
  assert.deepEqual(morePrices(pricing), [
    "cache read 0.1",
    "a call 0.01",
    "without a service tier, above 1,000 prompt tokens: prompt 3, completion 4, a call 0.02",
    "service tier flex: prompt 0.5, completion 1",
    "service tier priority: prompt 2, completion 4, image in 10, a call 0.05",
    "service tier priority, above 2,000 prompt tokens: prompt 6, completion 8, image in 20, a call 0.05",
  ]);
  assert.equal(morePrices({ ...pricing, tiers: undefined })[2], "above 1,000 prompt tokens: prompt 3, completion 4, a call 0.02");
  assert.deepEqual(morePrices(undefined), []);
});
