package stream

import "context"

// Carrier connects the hubs that share a queue. Each of its calls is a round
// trip to something that may be away; what it carries may be lost, doubled or
// late, and the streams make up for that.
type Carrier interface {
	// Self is the name of this hub, of this process of it.
	Self() string
	// Claim makes this hub the home of a client. Number is the last home that
	// this hub has heard of; that of the claim is not below it, and above it
	// if the home was not here before. Then every other hub is told.
	Claim(ctx context.Context, wanted Held) (Claim, error)
	// Renew keeps this hub the home of clients and tells whose they are.
	Renew(ctx context.Context, held []Held) ([]Home, error)
	// Release gives a home up, if it is still as named; the others are told.
	Release(ctx context.Context, held Held) error
	// Homes finds the homes of clients; the zero Home means none.
	Homes(ctx context.Context, clients []Key) ([]Home, error)
	// Beat says that this hub lives.
	Beat(ctx context.Context) error
	// Leave says that it does not any more.
	Leave(ctx context.Context) error
	// Alive tells which of the hubs have said so of late.
	Alive(ctx context.Context, hubs []string) ([]bool, error)
	// Mail sends a letter to one hub.
	Mail(ctx context.Context, hub string, letter []byte) error
	// Deposit keeps what is too large for a letter for a while, and Collect
	// takes it, once.
	Deposit(ctx context.Context, data []byte) (ref string, err error)
	Collect(ctx context.Context, ref string) ([]byte, error)
	// Listen gives what others tell until ctx ends; then the channel is
	// closed.
	Listen(ctx context.Context) <-chan Notice
}

// Home is the hub where a client has its socket, or had it less than the
// replay window ago.
type Home struct {
	Hub string
	// Number grows with each move of the same client.
	Number int64
}

// Claim is how a claim went.
type Claim struct {
	Home
	// Moved tells that the home was not here before, and Others how many hubs
	// have heard of it.
	Moved  bool
	Others int
}

// Held is a home that this hub holds.
type Held struct {
	Client Key
	Number int64
	// Entry tells what the hub knows of the client now from what it knew
	// before it had forgotten the client: a late Release of then must not
	// undo a Claim of now.
	Entry uint64
}

// Notice is what one hub tells another.
type Notice struct {
	Kind NoticeKind
	// Client and Home are set in Claimed and Released.
	Client Key
	Home   Home
	// Hub is set in Left.
	Hub string
	// Letter is set in Mailed.
	Letter []byte
}

// NoticeKind says what a Notice tells.
type NoticeKind uint8

// The kinds of notices.
const (
	// Resync: notices may have been missed. It comes first, too.
	Resync NoticeKind = iota
	// Claimed: a hub has become the home of a client.
	Claimed
	// Released: a hub is the home of a client no more, and none is.
	Released
	// Left: a hub has stopped.
	Left
	// Mailed: a letter to this hub.
	Mailed
)
