// Package peers is what hubs that share a Redis tell one another about
// their clients' streams: where each client is at home, letters from hub to
// hub, and parcels for what is too large for a letter. It carries bytes and
// knows nothing of what they mean; package stream does, and makes up for what
// is lost here: letters go by publication, which nobody keeps.
//
// Its keys:
//
//	s:hub:HUB        string  there while the hub lives
//	s:home:PACKED    hash    of a (tenant, client): hub, n, entry
//	s:parcel:ID      list    pieces of a large message, for a minute
//	s:hubs           channel what concerns all hubs
//	s:to:HUB         channel letters to one
package peers
