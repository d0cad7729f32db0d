// Package comfyui speaks the protocol of one ComfyUI server, seen from outside.
//
// [Client] asks and orders over HTTP, [Client.Dial] opens the WebSocket on
// which the server tells what it does, and [Watch] follows one server for as
// long as it may live, dying and coming back.
//
// The rest is about bytes. A hub stands between clients and servers and passes
// on what it does not understand: messages, history entries and graphs are
// therefore never decoded and encoded again. [RewriteID], [RewritePreview],
// [RewriteEntry] and [Rename] replace single values in place and leave every
// other byte as it came, NaN tokens and 64-bit seeds included.
package comfyui
