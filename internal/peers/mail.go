package peers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/stream"
)

const (
	// parcelFor is how long a parcel waits to be taken. The sender has what
	// is in it for longer, and sends it again.
	parcelFor = time.Minute
	// pieceBytes is the size of a parcel's pieces: one command moves one, and
	// must not hold up a Redis that others wait for.
	pieceBytes = 1 << 20
)

// errNoParcel says that a parcel is not there any more.
var errNoParcel = errors.New("peers: no such parcel")

//go:embed scripts/put.lua
var putLua string

//go:embed scripts/drop.lua
var dropLua string

var (
	putScript  = redis.NewScript("peers/put", redis.Write, putLua)
	dropScript = redis.NewScript("peers/drop", redis.Write, dropLua)
)

// The first word of a publication says what it is.
const (
	wordClaimed  = "claimed"
	wordReleased = "released"
	wordLeft     = "left"
	wordLetter   = "letter"
)

func (p *Peers) hubsChannel() string { return p.db.Key("s", "hubs") }

func (p *Peers) channelOf(hub string) string { return p.db.Key("s", "to", hub) }

// Mail sends a letter to one hub. That it was sent does not mean that anybody
// was there to read it.
func (p *Peers) Mail(ctx context.Context, hub string, letter []byte) error {
	// A publication changes no data, so it needs no script.
	if err := p.db.Client().Publish(ctx, p.channelOf(hub), redis.Pack(wordLetter, string(letter))).Err(); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	return nil
}

// Deposit keeps what is too large for a letter for a minute.
func (p *Peers) Deposit(ctx context.Context, data []byte) (ref string, err error) {
	ref = uuid.NewString()
	for piece := range slices.Chunk(data, pieceBytes) {
		if err := p.do(ctx, putScript, ref, piece, parcelFor.Milliseconds()); err != nil {
			return "", err
		}
	}
	return ref + "/" + strconv.Itoa(len(data)), nil
}

// Collect takes what was deposited.
func (p *Peers) Collect(ctx context.Context, ref string) ([]byte, error) {
	id, size, err := readRef(ref)
	if err != nil {
		return nil, err
	}
	name := p.db.Key("s", "parcel", id)
	var data []byte
	for i := int64(0); len(data) < size; i++ {
		piece, err := p.db.Client().LIndex(ctx, name, i).Bytes()
		if errors.Is(err, redis.Nil) || err == nil && len(piece) == 0 {
			return nil, errNoParcel
		}
		if err != nil {
			return nil, fmt.Errorf("peers: %w", err)
		}
		data = append(data, piece...)
	}
	if len(data) != size {
		return nil, errNoParcel
	}
	// It goes by itself in a minute; it is only large.
	return data, p.do(ctx, dropScript, id)
}

// maxParcel is more than an instance's message can have.
const maxParcel = 1 << 30

func readRef(ref string) (id string, size int, err error) {
	if len(ref) > 37 && ref[36] == '/' {
		id = ref[:36]
		size, err = strconv.Atoi(ref[37:])
		if err == nil && size > 0 && size <= maxParcel {
			return id, size, nil
		}
	}
	return "", 0, fmt.Errorf("peers: reference %.50q of a parcel cannot be read", ref)
}

// Listen gives what other hubs tell until ctx ends; see [stream.Carrier].
func (p *Peers) Listen(ctx context.Context) <-chan stream.Notice {
	out := make(chan stream.Notice)
	go func() {
		defer close(out)
		for published := range p.db.Subscribe(ctx, p.hubsChannel(), p.channelOf(p.self)) {
			notice, ok := readNotice(published.Payload)
			if published.Resync {
				notice, ok = stream.Notice{Kind: stream.Resync}, true
			}
			if !ok {
				continue
			}
			select {
			case out <- notice:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// readNotice reads a publication. Unknown ones are a newer hub's.
func readNotice(payload string) (stream.Notice, bool) {
	parts, ok := redis.Unpack(payload)
	if !ok || len(parts) < 2 {
		return stream.Notice{}, false
	}
	switch parts[0] {
	case wordLetter:
		return stream.Notice{Kind: stream.Mailed, Letter: []byte(parts[1])}, true
	case wordLeft:
		return stream.Notice{Kind: stream.Left, Hub: parts[1]}, true
	case wordClaimed, wordReleased:
		if len(parts) < 4 {
			return stream.Notice{}, false
		}
		client, ok := redis.Unpack(parts[2])
		number, err := strconv.ParseInt(parts[3], 10, 64)
		if !ok || len(client) != 2 || err != nil {
			return stream.Notice{}, false
		}
		n := stream.Notice{
			Kind: stream.Claimed, Client: stream.Key{Tenant: client[0], Client: client[1]},
			Home: stream.Home{Hub: parts[1], Number: number},
		}
		if parts[0] == wordReleased {
			n.Kind = stream.Released
		}
		return n, true
	}
	return stream.Notice{}, false
}
