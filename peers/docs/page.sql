select revision, at from history where name = '0' order by revision desc limit 100;
