"use strict";
// What a shortened text has lost: [kind, text] parts, where kind is "del", "ins" or "" for what is in both.
const MOST_PAIRS = 4e6; // words x words that are compared

function difference(before, after) {
  const one = before.match(/\s+|[^\s]+/g) || [], other = after.match(/\s+|[^\s]+/g) || [];
  let start = 0, end = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  while (end < Math.min(one.length, other.length) - start &&
    one[one.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  const left = one.slice(start, one.length - end), right = other.slice(start, other.length - end);
  const middle = left.length * right.length > MOST_PAIRS
    ? [["del", left.join("")], ["ins", right.join("")]] : compared(left, right);
  const joined = [], head = one.slice(0, start).join(""), tail = one.slice(one.length - end).join("");
  for (const [kind, text] of [["", head], ...middle, ["", tail]]) {
    if (joined.length && joined[joined.length - 1][0] === kind) joined[joined.length - 1][1] += text;
    else if (text) joined.push([kind, text]);
  }
  return joined;
}

function compared(left, right) { // the longest common subsequence of words
  const width = right.length + 1, longest = new Uint32Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = left[i] === right[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const parts = [];
  let i = 0, j = 0;
  while (i < left.length || j < right.length) {
    const more = i < left.length, other = j < right.length;
    if (more && other && left[i] === right[j]) {
      parts.push(["", left[i]]);
      i += 1;
      j += 1;
    } else if (more && (!other || longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      parts.push(["del", left[i]]);
      i += 1;
    } else {
      parts.push(["ins", right[j]]);
      j += 1;
    }
  }
  return parts;
}
