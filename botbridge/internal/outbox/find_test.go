package outbox

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// finder is a platform that can be asked for its messages.
type finder struct {
	fake

	here  []string       // what the chat holds, from message 1
	lose  map[int]string // by the number of a post: "before" or "after" it took effect
	posts int
	many  bool // too many messages to look at
}

var errLost = errors.Join(platform.ErrUncertain, errors.New("no answer"))

func (f *finder) Send(_ context.Context, _ platform.Chat, p platform.Post) ([]string, error) {
	f.posts++
	lost := f.lose[f.posts]
	if lost == "before" {
		return nil, errLost
	}
	var ids []string
	for range max(1, len(p.Files)) {
		f.here = append(f.here, p.Text)
		ids = append(ids, strconv.Itoa(len(f.here)))
	}
	if lost == "after" {
		return nil, errLost
	}
	return ids, nil
}

func (f *finder) Delete(_ context.Context, _ platform.Chat, message string) error {
	n, err := strconv.Atoi(message)
	if err == nil {
		f.here[n-1] = ""
	}
	return err
}

func (f *finder) Newest(platform.Chat, platform.Post, string) string {
	return strconv.Itoa(len(f.here))
}

func (f *finder) Candidates(_ platform.Chat, after, before string, _ int) (list []string, all bool) {
	n, _ := strconv.Atoi(after)
	for n++; n <= len(f.here) && strconv.Itoa(n) != before; n++ {
		list = append(list, strconv.Itoa(n))
	}
	return list, !f.many
}

func (f *finder) Is(_ context.Context, _ platform.Chat, message string, p platform.Post, _ int) (bool, error) {
	n, err := strconv.Atoi(message)
	return err == nil && f.here[n-1] == p.Text, err
}

// A post without an answer is there once in the end, or it is said that nobody knows.
func TestLostPostIsFound(t *testing.T) {
	picture := platform.Post{Text: "fox", Files: []platform.Attachment{{}}}
	album := platform.Post{Text: "foxes", Files: []platform.Attachment{{}, {}}}
	type row struct {
		post   platform.Post
		lose   map[int]string
		after  string   // of an earlier process
		here   []string // before
		want   []string // the chat
		ids    []string
		err    error
		known  []string // messages that are known to be others
		silent bool     // there are no words to ask with
		many   bool
	}
	beside.Cases(t, map[string]row{
		"it arrived":                      {post: picture, lose: map[int]string{1: "after"}, want: []string{"hello", "fox"}, ids: []string{"2"}},
		"it did not":                      {post: picture, lose: map[int]string{1: "before"}, want: []string{"hello", "", "fox"}, ids: []string{"3"}},
		"twice not, then without answer":  {post: picture, lose: map[int]string{1: "before", 3: "before", 5: "after"}, want: []string{"hello", "", "", "fox"}, ids: []string{"4"}},
		"an album arrived":                {post: album, lose: map[int]string{1: "after"}, want: []string{"hello", "foxes", "foxes"}, ids: []string{"2", "3"}},
		"the question is lost, too":       {post: picture, lose: map[int]string{1: "before", 2: "after"}, want: []string{"hello", "", "", "fox"}, ids: []string{"4"}},
		"words arrived":                   {post: platform.Post{Text: "news"}, lose: map[int]string{1: "after"}, want: []string{"hello", "news"}, ids: []string{"2"}},
		"words did not":                   {post: platform.Post{Text: "news"}, lose: map[int]string{1: "before"}, want: []string{"hello", "news"}, ids: []string{"2"}},
		"an earlier process sent it":      {post: picture, here: []string{"fox"}, after: "1", want: []string{"hello", "fox"}, ids: []string{"2"}},
		"an earlier process did not":      {post: picture, after: "1", want: []string{"hello", "", "fox"}, ids: []string{"3"}},
		"others have written meanwhile":   {post: picture, here: []string{"a", "fox", "b"}, after: "1", want: []string{"hello", "a", "fox", "b"}, ids: []string{"3"}},
		"another one that looks the same": {post: picture, here: []string{"fox", "fox"}, after: "1", known: []string{"2"}, want: []string{"hello", "fox", "fox"}, ids: []string{"3"}},
		"without words to ask with":       {post: picture, lose: map[int]string{1: "before"}, silent: true, want: []string{"hello"}, err: platform.ErrUncertain},
		"more messages than can be asked": {post: picture, lose: map[int]string{1: "before"}, many: true, want: []string{"hello", ""}, err: platform.ErrUncertain},
	}, func(t *testing.T, c row) {
		synctest.Test(t, func(t *testing.T) {
			f := &finder{here: append([]string{"hello"}, c.here...), lose: c.lose, many: c.many}
			b := New(Options{})
			defer b.Close()
			last := ""
			once := Once{After: c.after, Asking: "trying again", Mark: func(_ context.Context, sending bool, after string) error {
				require.Equal(t, sending, after != "")
				last = after
				return nil
			}, Known: func(_ context.Context, message string) (bool, error) { return slices.Contains(c.known, message), nil }}
			if c.silent {
				once.Asking = ""
			}
			ids, err := b.SendOnce(t.Context(), f, home, c.post, once)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.ids, ids)
			require.Equal(t, c.want, f.here)
			if c.err != nil {
				require.NotEmpty(t, last, "another process can go on with it")
			}
		})
	})
}

// A bridge that stops while it looks leaves it to the next one.
func TestStoppedWhileItLooks(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		f := &finder{here: []string{"hello"}, lose: map[int]string{1: "before"}}
		b := New(Options{})
		var marks []string
		result := make(chan error)
		go func() {
			_, err := b.SendOnce(t.Context(), f, home, platform.Post{Text: "fox", Files: []platform.Attachment{{}}}, Once{Asking: "trying again", Mark: func(_ context.Context, _ bool, after string) error {
				marks = append(marks, after)
				return nil
			}})
			result <- err
		}()
		time.Sleep(time.Second)
		b.Close()
		err := <-result
		require.ErrorIs(t, err, ErrUnsettled)
		require.NotErrorIs(t, err, platform.ErrUncertain, "it is not given up")
		require.Equal(t, []string{"1"}, marks)
		require.False(t, slices.ContainsFunc(f.here, func(s string) bool { return strings.Contains(s, "again") }))
	})
}
