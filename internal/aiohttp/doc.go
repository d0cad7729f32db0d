// Package aiohttp reads request targets as aiohttp does, the web server in
// ComfyUI. A hub that reads a path or a query differently from the servers
// behind it hands out what it means to keep: a path that it does not know may
// be one that they do.
package aiohttp
