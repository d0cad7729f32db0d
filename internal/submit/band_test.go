package submit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
)

// A prompt may ask for a lower band than its tenant's, but not for a higher one.
func TestBandOfAPrompt(t *testing.T) {
	t.Parallel()
	for of, gets := range map[job.Band][3]job.Band{ // if it asks for each of the three
		job.Interactive: {job.Interactive, job.Normal, job.Bulk}, job.Normal: {job.Normal, job.Normal, job.Bulk}, job.Bulk: {job.Bulk, job.Bulk, job.Bulk},
	} {
		s := &Submitter{LimitsOf: func(string) config.TenantLimits { return config.TenantLimits{Band: of} }}
		require.Equal(t, of, s.BandOf(Submission{}), "without a wish")
		for n, asks := range []job.Band{job.Interactive, job.Normal, job.Bulk} {
			require.Equal(t, gets[n], s.BandOf(Submission{Band: asks}), "%q of %q", asks, of)
		}
	}
}
