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
	// blobTTL is how long a blob is kept until it is taken. The sender keeps the
	// data for longer and sends it again if needed.
	blobTTL = time.Minute
	// pieceBytes is the size of one piece of a blob. Each command moves one piece,
	// so that a large blob does not block a Redis that others wait for.
	pieceBytes = 1 << 20
)

// errNoBlob is returned for a blob that no longer exists.
var errNoBlob = errors.New("peers: no such blob")

//go:embed scripts/putblob.lua
var putBlobLua string

//go:embed scripts/dropblob.lua
var dropBlobLua string

var (
	putBlobScript  = redis.NewScript("peers/putblob", redis.Write, putBlobLua)
	dropBlobScript = redis.NewScript("peers/dropblob", redis.Write, dropBlobLua)
)

// The first word of a publication is its kind.
const (
	wordClaimed  = "claimed"
	wordReleased = "released"
	wordLeft     = "left"
	wordMessage  = "letter" // the name that earlier versions use; hubs of both share a Redis during an upgrade
)

func (p *Peers) hubsChannel() string { return p.db.Key("s", "hubs") }

func (p *Peers) channelOf(hub string) string { return p.db.Key("s", "to", hub) }

// Send publishes a message to one hub. Success does not mean that the hub received
// it.
func (p *Peers) Send(ctx context.Context, hub string, message []byte) error {
	// Publishing changes no data, so it needs no script.
	if err := p.db.Client().Publish(ctx, p.channelOf(hub), redis.Pack(wordMessage, string(message))).Err(); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	return nil
}

// PutBlob stores data that is too large for a message, for a minute.
func (p *Peers) PutBlob(ctx context.Context, data []byte) (ref string, err error) {
	ref = uuid.NewString()
	for piece := range slices.Chunk(data, pieceBytes) {
		if err := p.do(ctx, putBlobScript, ref, piece, blobTTL.Milliseconds()); err != nil {
			return "", err
		}
	}
	return ref + "/" + strconv.Itoa(len(data)), nil
}

// TakeBlob returns what PutBlob stored, and deletes it.
func (p *Peers) TakeBlob(ctx context.Context, ref string) ([]byte, error) {
	id, size, err := readRef(ref)
	if err != nil {
		return nil, err
	}
	name := p.db.Key("s", "parcel", id)
	var data []byte
	for i := int64(0); len(data) < size; i++ {
		piece, err := p.db.Client().LIndex(ctx, name, i).Bytes()
		if errors.Is(err, redis.Nil) || err == nil && len(piece) == 0 {
			return nil, errNoBlob
		}
		if err != nil {
			return nil, fmt.Errorf("peers: %w", err)
		}
		data = append(data, piece...)
	}
	if len(data) != size {
		return nil, errNoBlob
	}
	// Redis would expire it within a minute, but it may be large.
	return data, p.do(ctx, dropBlobScript, id)
}

// maxBlob is larger than any message of an instance.
const maxBlob = 1 << 30

func readRef(ref string) (id string, size int, err error) {
	if len(ref) > 37 && ref[36] == '/' {
		id = ref[:36]
		size, err = strconv.Atoi(ref[37:])
		if err == nil && size > 0 && size <= maxBlob {
			return id, size, nil
		}
	}
	return "", 0, fmt.Errorf("peers: reference %.50q of a blob cannot be read", ref)
}

// Listen returns the notices of other hubs until ctx ends; see [stream.Transport].
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

// readNotice decodes a publication. It ignores kinds it does not know, which a
// newer hub may send.
func readNotice(payload string) (stream.Notice, bool) {
	parts, ok := redis.Unpack(payload)
	if !ok || len(parts) < 2 {
		return stream.Notice{}, false
	}
	switch parts[0] {
	case wordMessage:
		return stream.Notice{Kind: stream.Messaged, Message: []byte(parts[1])}, true
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
			Owner: stream.Owner{Hub: parts[1], Number: number},
		}
		if parts[0] == wordReleased {
			n.Kind = stream.Released
		}
		return n, true
	}
	return stream.Notice{}, false
}
