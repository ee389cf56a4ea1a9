// Publishing one record by hand, to see that it arrives.

import { part, post } from "../api.js";
import { ask } from "../dialogs.js";
import { refresh } from "../screen.js";

/** `index`: the partition; null leaves it to the key. */
export function publish(topic, index) {
  const isAnywhere = index === null;
  ask({
    title: `Publish to ${topic}${isAnywhere ? "" : `, partition ${index}`}`,
    text: [
      "One record, durable like any other before this page says so.",
      isAnywhere ? "Its key decides the partition; without one it goes anywhere." : "",
    ],
    fields: [
      { name: "key", label: "Key", placeholder: "none" },
      { name: "value", label: "Value", type: "area", required: true },
    ],
    button: "Publish",
    act: async ({ key, value }) => {
      const path = `/topics/${part(topic)}${isAnywhere ? "" : `/partitions/${index}`}/records`;
      const { records } = await post(path, { records: [{ key: key === "" ? null : key, value }] });
      refresh();
      return `Stored in partition ${records[0].partition} at offset ${records[0].offset}.`;
    },
  });
}
