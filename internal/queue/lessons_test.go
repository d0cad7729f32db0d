package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
)

// A lesson belongs to one life of one instance, and hubs share it.
func TestLessons(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		known := queue.Lesson{Instance: "gpu1", Boot: "a", Text: "bounds of x"}
		require.NoError(t, b.Learn(ctx, nil))
		require.NoError(t, b.Learn(ctx, []queue.Lesson{known, {Instance: "gpu2", Boot: "a", Text: "bounds of x"}}))
		require.NoError(t, b.Learn(ctx, []queue.Lesson{known}), "again")
		other := on(t, b.db, queue.Options{})
		for _, c := range []struct {
			lesson queue.Lesson
			want   bool
		}{
			{known, true},
			{queue.Lesson{Instance: "gpu1", Boot: "b", Text: "bounds of x"}, false},
			{queue.Lesson{Instance: "gpu3", Boot: "a", Text: "bounds of x"}, false},
			{queue.Lesson{Instance: "gpu1", Boot: "a", Text: "bounds of y"}, false},
		} {
			require.Equal(t, c.want, must(other.Learnt(ctx, []queue.Lesson{known, c.lesson})), c.lesson)
		}
	})
}
