package stream

import (
	"context"
	"time"
)

// Transport connects the hubs that share a queue. Each call is a round trip to
// something that may be unavailable; what it carries may be lost, duplicated or
// delayed, and the streams compensate for that.
type Transport interface {
	// Self returns the name of this process's hub.
	Self() string
	// Claim makes this hub the owner of a client. wanted.Number is the last ownership number that
	// this hub has heard of. The claim's number is at least that; it is higher if another hub was
	// the owner, and then all other hubs are told. If another hub has a newer socket of the client,
	// which can happen after an earlier claim failed, that hub stays the owner and is returned.
	Claim(ctx context.Context, wanted Ownership) (Claim, error)
	// Renew extends this hub's ownership of clients and returns their current
	// owners.
	Renew(ctx context.Context, held []Ownership) ([]Owner, error)
	// Release gives up an ownership, if it is unchanged, and tells the others.
	Release(ctx context.Context, held Ownership) error
	// Owners looks up the owners of clients; the zero Owner means none.
	Owners(ctx context.Context, clients []Key) ([]Owner, error)
	// Heartbeat reports that this hub is alive.
	Heartbeat(ctx context.Context) error
	// Leave reports that this hub has stopped.
	Leave(ctx context.Context) error
	// Alive reports which of the hubs have sent a heartbeat recently.
	Alive(ctx context.Context, hubs []string) ([]bool, error)
	// Send sends a message to one hub.
	Send(ctx context.Context, hub string, message []byte) error
	// PutBlob stores data that is too large for a message for a while; TakeBlob
	// returns and deletes it.
	PutBlob(ctx context.Context, data []byte) (ref string, err error)
	TakeBlob(ctx context.Context, ref string) ([]byte, error)
	// Listen returns the other hubs' notices until ctx ends; then it closes the
	// channel.
	Listen(ctx context.Context) <-chan Notice
}

// Owner is the hub where a client has its socket, or had it less than the replay
// window ago.
type Owner struct {
	Hub string
	// Number grows each time the client's owner changes.
	Number int64
}

// Claim is the result of a claim.
type Claim struct {
	Owner
	// Moved means that another hub was the owner before; Others is the number of
	// hubs that have been told.
	Moved  bool
	Others int
}

// Ownership is a client that this hub owns.
type Ownership struct {
	Client Key
	Number int64
	// Entry tells the hub's current record of the client from an earlier one that it has forgotten:
	// a delayed Release of the old one must not undo a Claim of the new one.
	Entry uint64
	// Age, for a claim, is how long the client's socket has been open.
	Age time.Duration
}

// Notice is what one hub tells another.
type Notice struct {
	Kind NoticeKind
	// Client and Owner are set for Claimed and Released.
	Client Key
	Owner  Owner
	// Hub is set for Left.
	Hub string
	// Message is set for Messaged.
	Message []byte
}

// NoticeKind is the kind of a Notice.
type NoticeKind uint8

// The kinds of notices.
const (
	// Resync means that notices may have been missed. It is also the first notice.
	Resync NoticeKind = iota
	// Claimed means that a hub has become the owner of a client.
	Claimed
	// Released means that a client no longer has an owner.
	Released
	// Left means that a hub has stopped.
	Left
	// Messaged is a message to this hub.
	Messaged
)
