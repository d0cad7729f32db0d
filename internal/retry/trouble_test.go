package retry_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/retry"
)

func TestTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var trouble retry.Trouble
		refused := errors.New("dial 10.0.0.1:6379 from :41000: refused")
		require.True(t, trouble.IsNews(refused))
		require.False(t, trouble.IsNews(refused))
		require.False(t, trouble.IsNews(errors.New("dial 10.0.0.1:6379 from :41001: refused")), "another port of its own")
		require.True(t, trouble.IsNews(errors.New("out of memory")))
		require.True(t, trouble.IsNews(nil), "for an unknown reason")
		time.Sleep(59 * time.Second)
		require.False(t, trouble.IsNews(nil))
		time.Sleep(time.Second)
		require.True(t, trouble.IsNews(nil), "it lasts")
	})
}
