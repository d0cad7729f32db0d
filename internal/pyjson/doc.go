// Package pyjson reads and writes JSON the way CPython's json module does.
//
// A ComfyUI server is a Python program: it accepts and sends NaN, Infinity and
// -Infinity as bare tokens, keeps the order of object members, keeps integers
// of any size exact, lets the last of several equal keys win, and writes ", "
// and ": " between tokens and \uXXXX for everything that is not ASCII.
// encoding/json refuses or loses each of these.
//
// [Parse] turns bytes into a tree of [Value] and remembers where each member
// of an object stood, so that a caller can pass on the original bytes of a
// part ([Object.Raw]). [Append] writes a tree in Python's style. Number
// literals survive a round trip as written; [Normalize] rewrites them to what
// Python would print after having read them.
//
// Where a tree is too much, a [Scanner] walks over the text in place, and
// [Splice] puts new values into it and leaves every other byte as it was.
package pyjson
