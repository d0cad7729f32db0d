// Package limits decides who may do what: who may use the bridge at all, how fast,
// how much per day, and which words are refused.
package limits

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/time/rate"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// Config configures who may do what. Users and chats are named platform:id, such as
// telegram:12345.
type Config struct {
	// AllowUsers and AllowChats, if either is not empty, admit only the listed users, and
	// everybody in the listed chats.
	AllowUsers []string `yaml:"allow_users"`
	AllowChats []string `yaml:"allow_chats"`
	BlockUsers []string `yaml:"block_users"`
	BlockChats []string `yaml:"block_chats"`
	// Admins may use the operator's commands; they have no daily share.
	Admins []string `yaml:"admins"`
	// Pictures and GPUSeconds are a user's share per day (UTC); at most one of them
	// is set. 0 means no limit.
	Pictures   int64 `yaml:"pictures_per_day"`
	GPUSeconds int64 `yaml:"gpu_seconds_per_day"`
	// Waiting is how many unfinished requests a user may have. Default: 5.
	Waiting int `yaml:"waiting"`
	// Messages is how many messages per user in 10 s are handled. Default: 10.
	Messages int `yaml:"messages_per_10s"`
	// Words are refused in a prompt, whatever their case.
	Words []string `yaml:"words"`
	// Filter is the URL of a service that checks each prompt: POST {"text": ...},
	// answered by {"allow": true|false}. Without an answer the prompt is refused.
	Filter string `yaml:"filter_url"`
}

// Problems returns what is wrong with the configuration.
func (c Config) Problems() (list []error) {
	add := func(format string, args ...any) { list = append(list, fmt.Errorf(format, args...)) }
	if c.Pictures > 0 && c.GPUSeconds > 0 {
		add("pictures_per_day and gpu_seconds_per_day cannot both be set")
	}
	for _, named := range []struct {
		word  string
		value int64
	}{
		{"pictures_per_day", c.Pictures}, {"gpu_seconds_per_day", c.GPUSeconds}, {"waiting", int64(c.Waiting)}, {"messages_per_10s", int64(c.Messages)},
	} {
		if named.value < 0 {
			add("%s: %d is negative", named.word, named.value)
		}
	}
	for _, named := range []struct {
		word string
		list []string
	}{
		{"allow_users", c.AllowUsers}, {"allow_chats", c.AllowChats}, {"block_users", c.BlockUsers}, {"block_chats", c.BlockChats}, {"admins", c.Admins},
	} {
		for _, name := range named.list {
			if problem := misnamed(name); problem != "" {
				add("%s: %q%s", named.word, name, problem)
			}
		}
	}
	if u, err := url.Parse(c.Filter); c.Filter != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "") {
		add("filter_url: this is not an http or https address")
	}
	return list
}

// misnamed says what is wrong with the name of a user or a chat, "" for nothing.
func misnamed(name string) string {
	platformName, id, ok := strings.Cut(name, ":")
	_, notNumber := strconv.ParseInt(id, 10, 64)
	switch {
	case !ok || platformName == "" || id == "":
		return " does not look like telegram:12345"
	case !slices.Contains([]string{"telegram", "webchat", "discord"}, platformName):
		return ": the platforms are telegram, discord and webchat"
	case platformName == "discord" && notNumber != nil:
		return ": a Discord id is a long number; in developer mode, *Copy ID* gives it"
	case platformName == "telegram" && notNumber != nil:
		return ": a Telegram id is a number; the bot tells everybody it does not let in theirs"
	}
	return ""
}

// Named reports whether a text can be the name of a user or a chat.
func Named(name string) bool {
	const longest = 128
	return len(name) <= longest && misnamed(name) == "" && !strings.ContainsFunc(name, unicode.IsSpace)
}

// Guard enforces the limits. It is safe for concurrent use.
type Guard struct {
	c     Config
	store *state.Store
	http  *http.Client

	mu    sync.Mutex
	pace  map[string]*pace
	swept time.Time
}

type pace struct {
	limiter *rate.Limiter
	used    time.Time
	told    time.Time
}

// New returns a Guard.
func New(c Config, store *state.Store) (*Guard, error) {
	if err := errors.Join(c.Problems()...); err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	c.Waiting = cmp.Or(c.Waiting, 5)
	c.Messages = cmp.Or(c.Messages, 10)
	return &Guard{c: c, store: store, http: &http.Client{Timeout: 3 * time.Second}, pace: map[string]*pace{}, swept: time.Now()}, nil
}

// Standing says whether a user may use the bridge.
type Standing int

// The standings.
const (
	// Welcome users may ask for anything.
	Welcome Standing = iota
	// Stranger is not on the list of who may use the bridge.
	Stranger
	// Banned is on the list of who may not, or was banned by command.
	Banned
)

// Ban is a stored ban, or that somebody was let in.
type Ban struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

// Standing returns whether the author of an event may ask for anything.
func (g *Guard) Standing(ctx context.Context, e platform.Event) (Standing, error) {
	who, chat := e.Platform+":"+e.User.ID, e.Platform+":"+e.Chat.ID
	former, err := g.former(ctx, e)
	switch {
	case g.Admin(e):
		return Welcome, nil
	case err != nil:
		return Stranger, err
	case slices.Contains(g.c.BlockUsers, who), slices.Contains(g.c.BlockChats, chat), slices.Contains(g.c.BlockChats, former):
		return Banned, nil
	}
	var ban Ban
	err = g.store.Get(ctx, "ban", who, &ban)
	switch {
	case err == nil:
		return Banned, nil
	case !errors.Is(err, state.ErrNotFound):
		return Stranger, err
	case !g.Stranger(e) || slices.Contains(g.c.AllowChats, former):
		return Welcome, nil
	}
	for _, name := range []string{who, chat, former} {
		var by Ban
		if err := g.store.Get(ctx, "allow", name, &by); name == "" || errors.Is(err, state.ErrNotFound) {
			continue
		} else if err != nil {
			return Stranger, err
		}
		return Welcome, nil
	}
	return Stranger, nil
}

// Allow lets in a user or a chat that the lists keep out, or takes that back.
func (g *Guard) Allow(ctx context.Context, name, by string, in bool) error {
	if !in {
		return g.store.Put(ctx, "allow", name, nil, 0)
	}
	return g.store.Put(ctx, "allow", name, Ban{By: by, Since: time.Now()}, 0)
}

// Admins returns the operators on a platform.
func (g *Guard) Admins(platformName string) (list []string) {
	for _, admin := range g.c.Admins {
		if strings.HasPrefix(admin, platformName+":") {
			list = append(list, admin)
		}
	}
	return list
}

// FormerKind records the former names of groups that have a new id, by the new name: the
// configuration may still have the old one.
const FormerKind = "moved_from"

// former returns the former name of an event's group, "" if it is unknown or no list names
// chats.
func (g *Guard) former(ctx context.Context, e platform.Event) (name string, err error) {
	if !e.Chat.Group || len(g.c.AllowChats)+len(g.c.BlockChats) == 0 {
		return "", nil
	}
	err = g.store.Get(ctx, FormerKind, e.Platform+":"+e.Chat.ID, &name)
	if errors.Is(err, state.ErrNotFound) {
		return "", nil
	}
	return name, err
}

// MayTell reports whether a chat may get a broadcast. user is the one who wrote there last,
// "" if unknown.
func (g *Guard) MayTell(ctx context.Context, platformName string, chat platform.Chat, user string) (bool, error) {
	name := platformName + ":" + chat.ID
	former, err := g.former(ctx, platform.Event{Platform: platformName, Chat: chat})
	if err != nil {
		return false, err
	}
	listed := func(list []string) bool { return slices.Contains(list, name) || slices.Contains(list, former) }
	if chat.Group && !listed(g.c.BlockChats) && (g.open() || listed(g.c.AllowChats)) {
		return true, nil
	}
	if user == "" && !chat.Group {
		user = chat.ID
	}
	standing, err := g.Standing(ctx, platform.Event{Platform: platformName, Chat: chat, User: platform.User{ID: user}})
	return standing == Welcome, err
}

// Stranger reports whether the lists alone keep the author of an event out.
func (g *Guard) Stranger(e platform.Event) bool {
	return !g.open() && !g.Admin(e) && !slices.Contains(g.c.AllowUsers, e.Platform+":"+e.User.ID) &&
		!slices.Contains(g.c.AllowChats, e.Platform+":"+e.Chat.ID)
}

// open means that everybody is admitted.
func (g *Guard) open() bool { return len(g.c.AllowUsers)+len(g.c.AllowChats) == 0 }

// Admin reports whether the author of an event is an operator.
func (g *Guard) Admin(e platform.Event) bool {
	return slices.Contains(g.c.Admins, e.Platform+":"+e.User.ID)
}

// Ban bans a user for a time; 0 means for ever.
func (g *Guard) Ban(ctx context.Context, who, by string, d time.Duration) error {
	return g.store.Put(ctx, "ban", who, Ban{By: by, Since: time.Now()}, d)
}

// Unban lifts a user's ban.
func (g *Guard) Unban(ctx context.Context, who string) error {
	return g.store.Put(ctx, "ban", who, nil, 0)
}

// SetShare gives a user a daily share of their own; a negative share removes it.
func (g *Guard) SetShare(ctx context.Context, who string, share int64) error {
	if share < 0 {
		return g.store.Put(ctx, "share", who, nil, 0)
	}
	return g.store.Put(ctx, "share", who, share, 0)
}

// Metered means that the daily share is in seconds of GPU time, instead of in pictures.
func (g *Guard) Metered() bool { return g.c.GPUSeconds > 0 }

// Share returns a user's daily share; 0 means no limit. metered means that it is in
// seconds of GPU time, charged at the end, instead of in pictures.
func (g *Guard) Share(ctx context.Context, e platform.Event) (share int64, metered bool, err error) {
	share, metered = g.c.Pictures, g.Metered()
	if metered {
		share = g.c.GPUSeconds
	}
	if g.Admin(e) {
		return 0, metered, nil
	}
	var own int64
	err = g.store.Get(ctx, "share", e.Platform+":"+e.User.ID, &own)
	switch {
	case err == nil:
		return own, metered, nil
	case errors.Is(err, state.ErrNotFound):
		return share, metered, nil
	}
	return 0, metered, err
}

// Waiting returns how many unfinished requests a user may have.
func (g *Guard) Waiting(e platform.Event) int {
	if g.Admin(e) {
		return 0
	}
	return g.c.Waiting
}

// Flood reports whether a user sends more messages than are handled, and whether to tell
// them now.
func (g *Guard) Flood(e platform.Event, now time.Time) (flood, tell bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(now)
	who := e.Platform + ":" + e.User.ID
	if e.Kind == platform.Queried {
		who += ":queried" // a few come with every word that is typed, and take nothing from messages
	}
	p := g.pace[who]
	if p == nil {
		p = &pace{limiter: rate.NewLimiter(rate.Limit(float64(g.c.Messages)/10), g.c.Messages)}
		g.pace[who] = p
	}
	p.used = now
	if p.limiter.AllowN(now, 1) {
		return false, false
	}
	tell = now.Sub(p.told) > time.Minute
	if tell {
		p.told = now
	}
	return true, tell
}

// sweep forgets users who have been silent, so that memory does not grow with
// everybody who ever wrote.
func (g *Guard) sweep(now time.Time) {
	if now.Sub(g.swept) < time.Minute {
		return
	}
	g.swept = now
	for who, p := range g.pace {
		if now.Sub(p.used) > 2*time.Minute {
			delete(g.pace, who)
		}
	}
}

// Takes reports whether the words of a prompt are accepted.
func (g *Guard) Takes(ctx context.Context, text string) bool {
	lower := strings.ToLower(text)
	for _, word := range g.c.Words {
		if strings.Contains(lower, strings.ToLower(word)) {
			return false
		}
	}
	return g.c.Filter == "" || g.ask(ctx, text)
}

// ask asks the filter. Without an answer the prompt is refused, because the filter
// is there to keep things out.
func (g *Guard) ask(ctx context.Context, text string) bool {
	body, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return false
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.c.Filter, bytes.NewReader(body))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := g.http.Do(r)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var answer struct{ Allow bool }
	err = json.NewDecoder(http.MaxBytesReader(nil, response.Body, 1<<16)).Decode(&answer)
	return err == nil && response.StatusCode == http.StatusOK && answer.Allow
}
