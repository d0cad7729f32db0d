package shell

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// tenantFlag names the tenant whose job the operator means.
func tenantFlag(cmd *cobra.Command) {
	cmd.Flags().String("tenant", "", "`name` of the tenant whose job is meant, where several have one with this id; for the operator")
}

// errNoJob is what a hub says of a job that it does not have.
var errNoJob = &Refusal{Status: http.StatusNotFound, Detail: "Job not found"}

// JobsWithID returns the jobs of everybody with an id, or only those of one tenant. The error is a
// [*Refusal] if there is none.
func (a *Admin) JobsWithID(ctx context.Context, id, tenant string) ([]FleetJob, error) {
	var jobs []FleetJob
	if err := a.get(ctx, "jobs", url.Values{"id": {id}}, &jobs); err != nil {
		return nil, err
	}
	jobs = slices.DeleteFunc(jobs, func(j FleetJob) bool {
		return j.ID != id || tenant != "" && j.Tenant != tenant // an older hub lists all that wait
	})
	if len(jobs) == 0 {
		return nil, errNoJob
	}
	slices.SortFunc(jobs, func(a, b FleetJob) int { return strings.Compare(a.Tenant, b.Tenant) })
	return jobs, nil
}

// CancelJob cancels the job with an id, whoever's it is, and reports whether it had not ended yet.
// Where several tenants have one, tenant has to say whose is meant.
func (a *Admin) CancelJob(ctx context.Context, id, tenant string) (cancelled bool, status string, err error) {
	jobs, err := a.JobsWithID(ctx, id, tenant)
	if err != nil {
		return false, "", err
	}
	if len(jobs) > 1 {
		return false, "", usagef("%s have a job with this id: say whose with --tenant", tenantsOf(jobs))
	}
	var answer struct{ Cancelled bool }
	err = a.ask(ctx, http.MethodPost, "cancel", url.Values{"tenant": {jobs[0].Tenant}, "job": {id}}, &answer)
	return answer.Cancelled, plainStatus(jobs[0].Status), err
}

// tenantsOf are the tenants of jobs, as a text.
func tenantsOf(jobs []FleetJob) string {
	names := make([]string, len(jobs))
	for n, j := range jobs {
		names[n] = printable(j.Tenant)
	}
	return strings.Join(names, ", ")
}

// operatorsStatus shows everybody's jobs with an id.
func operatorsStatus(ctx context.Context, a *Admin, cmd *cobra.Command, id, tenant string) error {
	jobs, err := a.JobsWithID(ctx, id, tenant)
	if err != nil {
		return err
	}
	if asJSON(cmd) {
		return writeJSON(cmd.OutOrStdout(), jobs)
	}
	for n, j := range jobs {
		if n > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		j.show(cmd.OutOrStdout())
	}
	return nil
}

// show writes all that an operator may want to know of a job.
func (j FleetJob) show(out io.Writer) {
	j.Status, j.Ended = plainStatus(j.Status), j.Finished
	reason := j.Error
	if j.Status == StatusFailed {
		reason = "" // its first line says it
	}
	fmt.Fprintln(out, j)
	for _, line := range []struct{ name, value string }{
		{"tenant", j.Tenant},
		{"instance", j.Instance},
		{"band", j.Band},
		{"priority", number(j.Priority)},
		{"attempts", number(j.Attempts)},
		{"accepted", moment(j.Created)},
		{"started", moment(j.Started)},
		{"ended", moment(j.Finished)},
		{"reason", cmp.Or(reason, paused(j.Paused))},
		{"lost runs", strings.Join(j.Lost, "; ")},
	} {
		if line.value != "" {
			fmt.Fprintf(out, "  %-10s%s\n", line.name, printable(line.value))
		}
	}
}

// number is a number, "" for 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// moment is a moment in Unix seconds in the local time, "" for none.
func moment(unix float64) string {
	if unix == 0 {
		return ""
	}
	return time.UnixMilli(int64(unix * 1000)).Format("2006-01-02 15:04:05")
}

func paused(on bool) string {
	if on {
		return "paused"
	}
	return ""
}
