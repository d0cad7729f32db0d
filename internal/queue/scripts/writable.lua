-- Writes the way a script that accepts a job does, but changes nothing except what scripts record
-- anyway: the time.
--
-- Output: {'ok'}
now()
return {'ok'}
