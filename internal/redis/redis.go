// Package redis connects the hub to its Redis and runs the scripts, which are the
// only way to change anything in it.
//
// The package guarantees three things, so that packages with scripts need not think
// of them:
//
//   - All writes go through scripts ([DB.Run]); plain commands on [DB.Client]
//     only read. The journal of the embedded server depends on this.
//   - A script that changes something runs once per call of [DB.Run], even if
//     its reply is lost and the script is sent again: it remembers its reply
//     under a nonce for a minute.
//   - An error that means "Redis cannot be used now" matches
//     [ErrUnavailable], whatever the cause. This is decided in one place.
//
// Every key begins with "{prefix}:", a single hash tag. All keys of a hub are
// therefore in one slot of a Redis Cluster, and scripts may build the names of
// their keys.
package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

// Embedded is the URL of the server inside this process.
const Embedded = "embedded"

// ErrNoReplicas says that the embedded server was asked to wait for replicas.
var ErrNoReplicas = errors.New("redis: the embedded server has no replicas")

// DefaultPrefix begins every key unless Options say otherwise.
const DefaultPrefix = "comfyhub"

// Options select the Redis to use.
type Options struct {
	// URL is one of
	//
	//	embedded                                            (also the empty string)
	//	redis://[user:password@]host:port[/db][?option=...]
	//	unix://[user:password@]/path/to.sock[?db=N]
	//	redis+sentinel://[user:password@]host:port[,host:port...]/master[/db][?sentinel_password=...]
	//	redis+cluster://[user:password@]host:port[,host:port...]
	//
	// with rediss in place of redis for TLS. Options in the query are those
	// of go-redis.
	URL string
	// Dir is the data folder of the embedded server. It holds the journal queue.aof
	// and the lock that keeps a second process out. Other servers do not use it.
	Dir string
	// Prefix begins every key; hubs that share a prefix share everything. Default:
	// "comfyhub".
	Prefix string
	// Replicas is how many replicas must have what a Replicated script has written before
	// Run returns. If they take longer than a second, Run fails with ErrUnavailable, and
	// so does each later one at once until they have caught up. Default: 0. The embedded
	// server has no replicas.
	Replicas int
	// Dial connects to the server where that takes something else than TCP; it does not
	// count for Sentinel, Cluster and the embedded server. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Observe is told of each request; default: nobody is. Everything that asks Redis calls
	// it, so it must be quick.
	Observe func(Request)
	// Logger receives what an operator should know; default: nothing is logged.
	Logger *slog.Logger
}

// Names of go-redis for packages that read. Writes go through DB.Run.
type (
	// Client runs plain commands.
	Client = goredis.UniversalClient
	// Pipeliner collects commands into one round trip.
	Pipeliner = goredis.Pipeliner
	// IntCmd is a number that a pipeline will return.
	IntCmd = goredis.IntCmd
	// SliceCmd is a list of values, some of which may be missing.
	SliceCmd = goredis.SliceCmd
	// ZRangeBy is a range of scores.
	ZRangeBy = goredis.ZRangeBy
	// Z is a member of a zset with its score.
	Z = goredis.Z
	// MapCmd is a hash.
	MapCmd = goredis.MapStringStringCmd
	// ScoredCmd is a range of a sorted set with its scores.
	ScoredCmd = goredis.ZSliceCmd
	// StringCmd is a string.
	StringCmd = goredis.StringCmd
	// StringSliceCmd is a list of strings.
	StringSliceCmd = goredis.StringSliceCmd
	// FloatCmd is a read of a score.
	FloatCmd = goredis.FloatCmd
)

// Nil is the result of reading what does not exist.
const Nil = goredis.Nil

// DB is a connection to Redis, safe for concurrent use.
type DB struct {
	client   goredis.UniversalClient
	pubsub   goredis.UniversalClient
	prefix   string
	embedded *engine.Engine // nil for an external server
	replicas *replicas      // nil if nothing waits for replicas
	observe  func(Request)
	log      *slog.Logger
	clock    *Clock
	closed   context.Context // ends subscriptions
	hangUp   context.CancelFunc
	closing  sync.Once
}

// Open prepares a connection. It does not wait for a Redis that is unavailable:
// commands fail with ErrUnavailable until it is there. The embedded server is
// started and restored from its journal; that fails if the journal cannot be read
// or another process is using the folder.
func Open(_ context.Context, o Options) (*DB, error) {
	db := &DB{prefix: o.Prefix, observe: o.Observe, log: o.Logger}
	db.clock = newClock(db)
	if db.observe == nil {
		db.observe = func(Request) {}
	}
	if db.prefix == "" {
		db.prefix = DefaultPrefix
	}
	if strings.ContainsAny(db.prefix, "{}") {
		return nil, fmt.Errorf("redis: prefix %q holds a brace", db.prefix)
	}
	if db.log == nil {
		db.log = slog.New(slog.DiscardHandler)
	}
	open, err := parseURL(o.URL, o.Dial)
	if err != nil {
		return nil, err
	}
	if open == nil {
		if db.embedded, err = startEmbedded(o.Dir, db.log); err != nil {
			return nil, fmt.Errorf("redis: embedded: %w", err)
		}
		open = openEmbedded(db.embedded)
	}
	if o.Replicas > 0 && db.embedded != nil {
		return nil, errors.Join(ErrNoReplicas, db.embedded.Close())
	}
	// go-redis prints each failed dial to stderr; callers get these errors anyway.
	goredis.SetLogger(silence{})
	db.client, db.pubsub = open(), open()
	db.closed, db.hangUp = context.WithCancel(context.Background())
	db.client.AddHook(errorHook{db.observe})
	db.pubsub.AddHook(subscriberHook{errorHook{db.observe}})
	if o.Replicas > 0 {
		db.replicas = &replicas{client: open(), want: o.Replicas}
	}
	return db, nil
}

// Close closes all connections; the embedded server writes its journal first.
// Closing again does nothing.
func (db *DB) Close() (err error) {
	db.closing.Do(func() {
		db.hangUp()
		err = errors.Join(db.client.Close(), db.pubsub.Close())
		if db.replicas != nil {
			err = errors.Join(err, db.replicas.client.Close())
		}
		if db.embedded != nil {
			err = errors.Join(err, db.embedded.Close())
		}
	})
	return err
}

// Client returns a client for reading. A command that fails because Redis is
// unavailable matches ErrUnavailable.
func (db *DB) Client() Client { return db.client }

// Embedded reports whether the server runs inside this process.
func (db *DB) Embedded() bool { return db.embedded != nil }

// Ping checks that Redis answers, and that the embedded server can store what it is
// told.
func (db *DB) Ping(ctx context.Context) error {
	if db.embedded != nil {
		if err := db.embedded.Usable(); err != nil {
			return &unavailableError{err}
		}
	}
	return db.client.Ping(ctx).Err()
}

// Key builds the name of a key: the prefix in its hash tag, then the parts,
// separated by colons. A part that anyone outside can choose must be the last one
// or be packed ([Pack]); otherwise two names could end up as the same key.
func (db *DB) Key(parts ...string) string { return db.root() + strings.Join(parts, ":") }

// root is the start of all keys; scripts get it as KEYS[1].
func (db *DB) root() string { return "{" + db.prefix + "}:" }

// silence is a logger for go-redis.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
