package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlanService(t *testing.T) {
	t.Parallel()
	p, err := planService([]string{
		"run", "--join", "a:7946,b:7946", "--comfyui=left=http://127.0.0.1:8188", "--key-file", `C:\key`, "--stop-timeout", "5m",
		"--restart-command", "echo a, b", "--log-level", "debug",
	})
	require.NoError(t, err)
	require.Equal(t, `C:\key`, p.secretFile)
	require.Equal(t, 5*time.Minute, p.stopTimeout)
	args := p.arguments(`D:\agent key`, `D:\state`)
	require.Equal(t, []string{
		"run", `--key-file=D:\agent key`, "--comfyui=left=http://127.0.0.1:8188", "--join=a:7946", "--join=b:7946", "--log-level=debug",
		"--restart-command=echo a, b", "--stop-timeout=5m0s", `--state=D:\state`,
	}, args)
	again, err := planService(args)
	require.NoError(t, err)
	require.ElementsMatch(t, args, again.arguments(`D:\agent key`, ""), "the service reads what the plan has")

	p, err = planService([]string{"pull", "--hub", "https://hub"})
	require.NoError(t, err)
	require.Equal(t, []string{"pull", `--token-file=t`, "--hub=https://hub"}, p.arguments("t", "s"))

	for want, args := range map[string][]string{
		"what does the service run": {"simulate"},
		"unknown command":           {"rnu"},
		"--join: which hub":         {"run"},
		"--hub: which hub":          {"pull"},
		"unknown flag":              {"run", "--unknown"},
		"takes no arguments":        {"run", "--join", "a", "extra"},
	} {
		_, err := planService(args)
		require.ErrorContains(t, err, want)
	}
}

func TestServiceSID(t *testing.T) {
	t.Parallel()
	// That of every Windows.
	require.Equal(t, "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464", serviceSID("TrustedInstaller"))
}
