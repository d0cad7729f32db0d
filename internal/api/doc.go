// Package api is what the rooms of the API share: the router, the reading of
// requests and their bodies, the answers that only a hub can give, and who makes
// a request. Each dialect has a room of its own below it, which only translates
// between HTTP and the core (package hub).
package api
