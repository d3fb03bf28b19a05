/**
 * Slots: each lock name belongs to one of 4,096, and each slot to one group of the cluster.
 *
 * The slot of a name is the CRC32C (Castagnoli) of its tag, or of the whole name if it has none, modulo 4,096. The tag
 * is the text between the first `{` and the next `}` behind it. If there is no text between them, the search goes on
 * behind that `}`. The nodes compute the same slots, so the rule can never change.
 */

export const SLOTS = 4_096;

/** Of Castagnoli's polynomial, with its bits in reverse. */
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc;
});

const encoder = new TextEncoder();

export function slotOf(name: string): number {
  return crc32c(encoder.encode(tagOf(name) ?? name)) % SLOTS;
}

function tagOf(name: string): string | undefined {
  let from = 0;
  for (;;) {
    const open = name.indexOf("{", from);
    const close = open < 0 ? -1 : name.indexOf("}", open);
    if (close < 0) return undefined;
    if (close > open + 1) return name.slice(open + 1, close);
    from = close + 1;
  }
}

function crc32c(content: Uint8Array): number {
  let crc = 0xffff_ffff;
  for (const byte of content) crc = (crc >>> 8) ^ (TABLE[(crc ^ byte) & 0xff] as number);
  return (crc ^ 0xffff_ffff) >>> 0;
}
