// Package peers connects the hubs that share a Redis, so that they can serve their
// clients' streams together: it records which hub owns each client, passes messages
// from hub to hub, and stores blobs that are too large for a message. It does not
// interpret what it carries; package stream does, and recovers what is lost here:
// messages are Redis publications, which nobody stores.
//
// Keys and channels:
//
//	s:hub:HUB        string  exists while the hub is alive
//	s:home:PACKED    hash    owner of a (tenant, client): hub, n, entry, opened
//	s:parcel:ID      list    pieces of a blob, kept for a minute
//	s:hubs           channel notices to all hubs
//	s:to:HUB         channel messages to one hub
package peers
