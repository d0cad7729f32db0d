package agent

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDisks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	spaces := map[string]room{"/out": {free: 50, size: 100}, "/temp": {free: 90, size: 100}}
	d := disks{reserve: 20, space: func(folder string) (room, error) {
		mu.Lock()
		defer mu.Unlock()
		if r, ok := spaces[folder]; ok {
			return r, nil
		}
		return room{}, errors.New("away")
	}}
	set := func(folder string, free int64) {
		mu.Lock()
		defer mu.Unlock()
		spaces[folder] = room{free: free, size: 100}
	}
	all := []string{"/out", "/temp", "/away"}
	_, _, known := d.of(all)
	require.False(t, known, "it was not looked at yet")
	changes := make(chan bool, 10)
	look := func() {
		d.look(func(_ string, _ room, full bool) { changes <- full })
		require.Eventually(t, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, look := range d.folders {
				if look.busy {
					return false
				}
			}
			return true
		}, time.Minute, time.Millisecond)
	}
	for _, step := range []struct {
		free int64
		full bool
	}{{50, false}, {20, false}, {19, true}, {24, true}, {25, false}} {
		set("/out", step.free)
		look()
		r, full, known := d.of(all)
		require.True(t, known)
		require.Equal(t, room{step.free, 100}, r, "the fullest")
		require.Equal(t, step.full, full, step.free)
	}
	require.True(t, <-changes)
	require.False(t, <-changes)
	require.Empty(t, changes)
	_, _, known = d.of([]string{"/away"})
	require.False(t, known)
}

func TestSpace(t *testing.T) {
	t.Parallel()
	r, err := space(t.TempDir())
	require.NoError(t, err)
	require.Positive(t, r.size)
	require.LessOrEqual(t, r.free, r.size)
	_, err = space("/nowhere/at/all")
	require.Error(t, err)
}

func TestFolders(t *testing.T) {
	t.Parallel()
	i := local("")
	i.output = "/out"
	i.seen.Command = strings.Join([]string{"main.py", "--output-directory", "/out/", "--temp-directory=/tmp/comfy", "--base-directory", "relative"}, "\x00")
	require.Equal(t, []string{"/out", "/tmp/comfy"}, i.folders())
	i.url = "http://10.0.0.9:8188"
	require.Empty(t, i.folders(), "they are on another machine")
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "500MB": 500 << 20, "2GB": 2 << 30, "1KB": 1 << 10, "77": 77} {
		var s size
		require.NoError(t, s.Set(text))
		require.EqualValues(t, want, s)
		require.Equal(t, text, s.String())
	}
	for _, text := range []string{"", "GB", "-1GB", "1.5GB", "99999999999999GB", "1TB"} {
		require.Error(t, new(size).Set(text), text)
	}
}

func FuzzSize(f *testing.F) {
	f.Add("2GB")
	f.Fuzz(func(t *testing.T, text string) {
		var s, again size
		if s.Set(text) == nil {
			require.GreaterOrEqual(t, int64(s), int64(0))
			require.NoError(t, again.Set(s.String()))
			require.Equal(t, s, again)
		}
	})
}
