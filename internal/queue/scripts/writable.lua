-- Writes as a script that accepts a job does, and changes nothing but what scripts note
-- anyway: the time.
--
-- Output: {'ok'}
now()
return {'ok'}
